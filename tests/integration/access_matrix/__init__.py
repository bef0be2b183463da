"""Who may do what, asked of a broker: each endpoint and command as each kind of client.

What Apache Pulsar 4.0.8 answers is in ``apache.tsv``; where Magnetar differs, ``explained.tsv`` says why.
Who may ask for what Apache Pulsar does not have is decided in ``own.tsv``.
To record again: ``python -m access_matrix HTTP_URL BINARY_PORT FILE``, with ``tests/integration`` and
``tests/harness`` in PYTHONPATH, against a broker with the settings of :data:`access_matrix.columns.SETTINGS`.
"""
