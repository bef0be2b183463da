"""
decrypted: secret
keys: ['name']
failed: False
without the key: True
"""

import pulsar

client = pulsar.Client(URL)
keys = pulsar.CryptoKeyReader(PUBLIC_KEY, PRIVATE_KEY)
consumer = client.subscribe(TOPIC, "s", crypto_key_reader=keys)
blind = client.subscribe(TOPIC, "blind", crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME)
producer = client.create_producer(TOPIC, encryption_key="name", crypto_key_reader=keys)
producer.send(b"secret")
msg = consumer.receive(20000)
print("decrypted:", msg.data().decode())
context = msg.encryption_context()
names = context.keys()
print("keys:", [key.key for key in names])
print("failed:", context.is_decryption_failed())
hidden = blind.receive(20000)
print("without the key:", hidden.data() != b"secret" and hidden.encryption_context().is_decryption_failed())
client.close()
