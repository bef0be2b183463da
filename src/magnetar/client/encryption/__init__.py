"""End-to-end encryption of payloads, compatible with Pulsar's clients; brokers cannot read the payloads. A
producer encrypts payloads with AES-256-GCM and a data key of its own. The metadata of each entry contains
this data key, encrypted with a public key. Source: Pulsar's "End-to-end encryption", and the messages of
its clients.
"""
