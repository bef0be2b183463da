"""``magnetar completion``: shell scripts that complete command lines of ``magnetar``, ``pulsar-admin``,
``pulsar-client`` and ``pulsar-perf``."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

from magnetar.exit_codes import SUCCEEDED

_BASH = """\
_magnetar_words() {
    local line="${COMP_LINE:0:COMP_POINT}" each cut=""
    local word="${line##* }"
    # What bash takes for another word, because of its colon, is not to be written twice.
    [[ "$word" == *:* && "$COMP_WORDBREAKS" == *:* ]] && cut="${word%"${word##*:}"}"
    COMPREPLY=()
    while IFS= read -r each; do
        COMPREPLY+=("${each#"$cut"}")
        [[ "$each" == */ ]] && compopt -o nospace 2>/dev/null
    done < <(magnetar completion words "$line" 2>/dev/null)
}
complete -o default -F _magnetar_words magnetar pulsar-admin pulsar-client pulsar-perf
"""
_ZSH = """\
#compdef magnetar pulsar-admin pulsar-client pulsar-perf
_magnetar_words() {
    local -a found parts
    found=("${(@f)$(magnetar completion words "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
    parts=("${(@M)found:#*/}")
    found=("${(@)found:#*/}")
    (( $#parts )) && compadd -S '' -- $parts
    (( $#found )) && compadd -- $found
}
compdef _magnetar_words magnetar pulsar-admin pulsar-client pulsar-perf
"""
_FISH = """\
function __magnetar_words
    magnetar completion words (commandline -cp | string collect) 2>/dev/null
end
complete -c magnetar -a '(__magnetar_words)'
complete -c pulsar-admin -f -a '(__magnetar_words)'
complete -c pulsar-client -a '(__magnetar_words)'
complete -c pulsar-perf -a '(__magnetar_words)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_WORDS = "words"


def add_completion(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command ``completion`` to the parser of ``magnetar``."""
    parser = commands.add_parser(
        "completion",
        help="print a script for shell completion",
        description="Prints a completion script for a shell. To load it: source <(magnetar completion bash); "
        "in fish: magnetar completion fish | source. The broker provides the names of topics and "
        "namespaces.",
    )
    parser.add_argument(
        "what",
        choices=(*_SCRIPTS, _WORDS),
        help='shell for which to print the script; the value "words" prints the candidates for the next word',
    )
    parser.add_argument(
        "line", nargs="?", default="", help='only with the value "words": the command line up to the cursor'
    )


def run_completion(parsed: argparse.Namespace, magnetar: argparse.ArgumentParser) -> int:
    """Prints a completion script or, when such a script calls the command, the candidates for the current
    word, one per line.
    """
    if parsed.what in _SCRIPTS:
        sys.stdout.write(_SCRIPTS[parsed.what])
        return SUCCEEDED
    words, current = _split(parsed.line)
    name = Path(words[0]).name if words else ""
    if name == "pulsar-admin":
        from magnetar.cli.admin.completing import candidates

        found = candidates(words[1:], current)
    else:
        known = _PARSERS[name]() if name in _PARSERS else magnetar
        found = [each for each in _of_parser(known, words[1:], current) if each.startswith(current)]
    sys.stdout.write("".join(f"{each}\n" for each in found))
    return SUCCEEDED


def _client() -> argparse.ArgumentParser:
    from magnetar.cli.client.options import parser

    return parser()


def _perf() -> argparse.ArgumentParser:
    from magnetar.cli.perf.options import parser

    return parser()


_PARSERS = {"pulsar-client": _client, "pulsar-perf": _perf}


def _split(line: str) -> tuple[list[str], str]:
    """Returns the complete words of a command line, and the beginning of the last word."""
    try:
        words = shlex.split(line)
    except ValueError:
        # A quote is still open.
        words = line.split()
    if not words or line[-1:].isspace():
        return words, ""
    return words[:-1], words[-1]


def _of_parser(parser: argparse.ArgumentParser, words: list[str], current: str) -> Iterable[str]:
    """Returns the candidates for the current word that a parser permits: subcommands, options, values of
    options, or topics.
    """
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for index, word in enumerate(words):
                if word in action.choices:
                    return _of_parser(action.choices[word], words[index + 1 :], current)
    known = parser._option_string_actions
    last = known.get(words[-1]) if words else None
    if last is not None and last.nargs != 0:
        return map(str, last.choices or ())
    if current.startswith("-"):
        return known
    return _of_operand(_operand(parser, words), current) or known


def _operand(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Action | None:
    """Returns the positional argument to which the current word would belong; None: all positional arguments
    already have values.
    """
    known = parser._option_string_actions
    given, skip = 0, False
    for word in words:
        option = known.get(word)
        if not skip and option is None and not word.startswith("-"):
            given += 1
        skip = not skip and option is not None and option.nargs != 0
    operands = [action for action in parser._actions if not action.option_strings]
    if given >= len(operands) and operands and operands[-1].nargs in ("+", "*"):
        return operands[-1]
    return operands[given] if given < len(operands) else None


def _of_operand(operand: argparse.Action | None, current: str) -> Iterable[str]:
    if operand is None:
        return ()
    if operand.dest in ("name", "of") and operand.metavar in ("NAME", "PIPELINE"):
        from magnetar.spark.pipelines.names import PIPELINES

        return [*PIPELINES, *(("init", "list") if operand.dest == "name" else ())]
    if operand.dest in ("topic", "topics"):
        from magnetar.cli.admin.completing import topics

        return topics(current)
    return [*map(str, operand.choices or ())]
