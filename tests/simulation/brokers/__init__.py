"""Several brokers of one cluster on model bookies and a model ZooKeeper, while everything goes wrong."""
