package main

import (
	"context"
	"fmt"

	"github.com/apache/pulsar-client-go/pulsar"
)

// routing sends 40 keys to the partitioned topics PREFIX-JavaStringHash and PREFIX-Murmur3_32Hash.
func (r *run) routing() {
	check("routing", 80, func() error {
		for name, scheme := range map[string]pulsar.HashingScheme{
			"JavaStringHash": pulsar.JavaStringHash, "Murmur3_32Hash": pulsar.Murmur3_32Hash,
		} {
			topic := "persistent://public/default/" + r.prefix + "-" + name
			producer, err := r.client.CreateProducer(pulsar.ProducerOptions{
				Topic: topic, HashingScheme: scheme, DisableBatching: true,
			})
			if err != nil {
				return err
			}
			for number := 0; number < 40; number++ {
				message := &pulsar.ProducerMessage{Key: fmt.Sprintf("key-%d", number), Payload: []byte("go")}
				if _, err := producer.Send(context.Background(), message); err != nil {
					return err
				}
			}
			producer.Close()
		}
		return nil
	})
}
