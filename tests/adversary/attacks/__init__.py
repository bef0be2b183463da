"""One module for each attack, with one function: ``attack(target)``.

An attack does its worst as the user of tenant ``a``, or as nobody, and raises ``AssertionError`` where it got
or changed what it may not. The test around it checks what holds for all attacks: nothing of tenant ``b`` is
different afterwards, the broker's memory stays bounded, and a publisher of ``b`` hardly notices. A new module
here is an attack of the suite.
"""
