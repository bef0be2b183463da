package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
)

const transactionMessages = 6

// A producer and a shared consumer of one topic, before they are created.
type pair struct {
	producer pulsar.ProducerOptions
	consumer pulsar.ConsumerOptions
	padding  int
}

func (r *run) pair(name string) pair {
	topic := r.topic(name)
	return pair{
		producer: pulsar.ProducerOptions{Topic: topic, DisableBatching: true, SendTimeout: -1},
		consumer: pulsar.ConsumerOptions{
			Topic: topic, SubscriptionName: "s", Type: pulsar.Shared,
			SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
			NackRedeliveryDelay:         100 * time.Millisecond,
		},
	}
}

// transactionFeatures is each feature of this client's producers and consumers together with transactions.
func transactionFeatures(url string, prefix string) {
	r := &run{url: url, prefix: prefix}
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: url, OperationTimeout: timeout, EnableTransaction: true, Logger: quiet()})
	if err != nil {
		check("connecting", 0, func() error { return err })
	}
	r.client = client
	defer client.Close()
	check("batches", transactionMessages, func() error {
		p := r.pair("batches")
		p.producer.DisableBatching, p.producer.BatchingMaxPublishDelay = false, time.Minute
		return r.outcomes(p)
	})
	for _, codec := range codecs {
		check("compression "+codec.name, transactionMessages, func() error {
			p := r.pair("codec-" + codec.name)
			p.producer.CompressionType, p.padding = codec.kind, 3000
			return r.outcomes(p)
		})
	}
	check("chunks", transactionMessages, func() error {
		p := r.pair("chunks")
		p.producer.EnableChunking, p.producer.ChunkMaxMessageSize, p.padding = true, 2000, 9000
		return r.outcomes(p)
	})
	check("encryption", transactionMessages, func() error {
		keys, err := newKeys()
		if err != nil {
			return err
		}
		p := r.pair("encryption")
		p.producer.Encryption = &pulsar.ProducerEncryptionInfo{Keys: []string{"key"}, KeyReader: keys}
		p.consumer.Decryption = &pulsar.MessageDecryptionInfo{KeyReader: keys}
		return r.outcomes(p)
	})
	check("keys", transactionMessages, func() error {
		p := r.pair("keys")
		p.consumer.Type = pulsar.KeyShared
		return r.outcomes(p)
	})
	check("parts of batches", 4, r.partsOfBatches)
	check("delays", 2, r.delays)
	check("schemas", 2, r.schemas)
	check("dead letters", 1, r.deadLetters)
	check("negative acknowledgement", 2, r.negative)
	check("reader", 2, r.readerOfTransactions)
	check("several topics", 2, r.severalTopics)
}

func (r *run) begin() (pulsar.Transaction, error) { return r.client.NewTransaction(time.Minute) }

func receive(consumer pulsar.Consumer) (pulsar.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return consumer.Receive(ctx)
}

// receiveAll returns the next messages, and their texts in order.
func receiveAll(consumer pulsar.Consumer, count int) ([]pulsar.Message, []string, error) {
	var messages []pulsar.Message
	var texts []string
	for len(messages) < count {
		message, err := receive(consumer)
		if err != nil {
			return nil, nil, fmt.Errorf("after %v: %w", texts, err)
		}
		messages = append(messages, message)
		texts = append(texts, strings.TrimSpace(strings.TrimRight(string(message.Payload()), "x")))
	}
	sort.Strings(texts)
	return messages, texts, nil
}

func same(found, wanted any) error {
	if !reflect.DeepEqual(found, wanted) {
		return fmt.Errorf("%v in place of %v", found, wanted)
	}
	return nil
}

// expectMessages receives as many messages, with these texts in any order.
func expectMessages(consumer pulsar.Consumer, wanted ...string) ([]pulsar.Message, error) {
	messages, texts, err := receiveAll(consumer, len(wanted))
	return messages, first(err, same(texts, wanted))
}

func send(producer pulsar.Producer, text string, in pulsar.Transaction) error {
	message := &pulsar.ProducerMessage{Payload: []byte(text), Key: text[len(text)-1:], Transaction: in}
	_, err := producer.Send(context.Background(), message)
	return err
}

func acknowledge(consumer pulsar.Consumer, messages []pulsar.Message, in pulsar.Transaction) error {
	for _, message := range messages {
		if err := consumer.AckWithTxn(message, in); err != nil {
			return err
		}
	}
	return nil
}

// opened runs a body with both ends of a pair.
func (r *run) opened(p pair, body func(pulsar.Consumer, pulsar.Producer) error) error {
	consumer, err := r.client.Subscribe(p.consumer)
	if err != nil {
		return err
	}
	defer consumer.Close()
	producer, err := r.client.CreateProducer(p.producer)
	if err != nil {
		return err
	}
	defer producer.Close()
	return body(consumer, producer)
}

// within runs a body in a transaction, and ends that.
func (r *run) within(commit bool, body func(pulsar.Transaction) error) error {
	in, err := r.begin()
	if err != nil {
		return err
	}
	if err := body(in); err != nil {
		return err
	}
	if commit {
		return in.Commit(context.Background())
	}
	return in.Abort(context.Background())
}

// acknowledgeTwice receives messages in any order, and acknowledges them in a transaction that is aborted, then in one that is
// committed.
func (r *run) acknowledgeTwice(consumer pulsar.Consumer, wanted ...string) error {
	for _, commit := range []bool{false, true} {
		messages, err := expectMessages(consumer, wanted...)
		if err != nil {
			return err
		}
		if err := r.within(commit, func(in pulsar.Transaction) error { return acknowledge(consumer, messages, in) }); err != nil {
			return err
		}
	}
	return expectNothing(consumer)
}

// outcomes publishes and acknowledges in transactions that are aborted, and in ones that are committed. The consumer sees what was
// committed, and sees it again unless its acknowledgement was committed.
func (r *run) outcomes(p pair) error {
	return r.opened(p, func(consumer pulsar.Consumer, producer pulsar.Producer) error {
		aborted, err := r.begin()
		if err != nil {
			return err
		}
		var wanted []string
		err = r.within(true, func(committed pulsar.Transaction) error {
			for index := 0; index < transactionMessages; index++ {
				wanted = append(wanted, fmt.Sprintf("committed %d", index))
			}
			// This client puts all messages of a batch into the transaction of its first one, so each run is flushed.
			padding := " " + strings.Repeat("x", p.padding)
			for from := 0; from < transactionMessages; from += transactionMessages / 2 {
				for name, in := range map[string]pulsar.Transaction{"aborted": aborted, "committed": committed} {
					for index := from; index < from+transactionMessages/2; index++ {
						message := &pulsar.ProducerMessage{
							Payload: []byte(fmt.Sprintf("%s %d", name, index) + padding), Key: fmt.Sprint(index % 2), Transaction: in,
						}
						producer.SendAsync(context.Background(), message, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
					}
					if err := producer.Flush(); err != nil {
						return err
					}
				}
			}
			return first(expectNothing(consumer), aborted.Abort(context.Background()), expectNothing(consumer))
		})
		if err != nil {
			return err
		}
		return r.acknowledgeTwice(consumer, wanted...)
	})
}

// partsOfBatches acknowledges one message of a batch. With the next message this client would acknowledge the first one again,
// which the broker refuses.
func (r *run) partsOfBatches() error {
	p := r.pair("parts")
	p.producer.DisableBatching, p.producer.BatchingMaxMessages, p.producer.BatchingMaxPublishDelay = false, 4, time.Minute
	p.consumer.EnableBatchIndexAcknowledgment = true
	return r.opened(p, func(consumer pulsar.Consumer, producer pulsar.Producer) error {
		for index := 0; index < 4; index++ {
			message := &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(index))}
			producer.SendAsync(context.Background(), message, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
		}
		if err := producer.Flush(); err != nil {
			return err
		}
		messages, err := expectMessages(consumer, "0", "1", "2", "3")
		if err != nil {
			return err
		}
		err = r.within(true, func(in pulsar.Transaction) error { return acknowledge(consumer, messages[:1], in) })
		if err != nil {
			return err
		}
		consumer.Close()
		again, err := r.client.Subscribe(p.consumer)
		if err != nil {
			return err
		}
		defer again.Close()
		_, err = expectMessages(again, "1", "2", "3")
		return first(err, expectNothing(again))
	})
}

func (r *run) delays() error {
	return r.opened(r.pair("delays"), func(consumer pulsar.Consumer, producer pulsar.Producer) error {
		later := func(text string, in pulsar.Transaction, after time.Duration) error {
			message := &pulsar.ProducerMessage{Payload: []byte(text), Transaction: in, DeliverAfter: after}
			_, err := producer.Send(context.Background(), message)
			return err
		}
		err := r.within(false, func(aborted pulsar.Transaction) error { return later("aborted", aborted, 300*time.Millisecond) })
		if err != nil {
			return err
		}
		err = r.within(true, func(committed pulsar.Transaction) error {
			return first(later("far", committed, time.Hour), later("due", committed, 300*time.Millisecond),
				send(producer, "at once", committed), expectNothing(consumer), expectNothing(consumer))
		})
		if err != nil {
			return err
		}
		_, err = expectMessages(consumer, "at once", "due")
		return first(err, expectNothing(consumer))
	})
}

type order struct {
	Number int    `json:"number" avro:"number"`
	Item   string `json:"item" avro:"item"`
}

func (r *run) schemas() error {
	definition := `{"type":"record","name":"order","fields":[{"name":"number","type":"int"},{"name":"item","type":"string"}]}`
	for name, schema := range map[string]pulsar.Schema{
		"json": pulsar.NewJSONSchema(definition, nil), "avro": pulsar.NewAvroSchema(definition, nil),
	} {
		p := r.pair("schema-" + name)
		p.producer.Schema, p.consumer.Schema = schema, schema
		err := r.opened(p, func(consumer pulsar.Consumer, producer pulsar.Producer) error {
			for _, commit := range []bool{false, true} {
				err := r.within(commit, func(in pulsar.Transaction) error {
					value := order{Number: 7, Item: fmt.Sprint(commit)}
					_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Value: value, Transaction: in})
					return err
				})
				if err != nil {
					return err
				}
			}
			message, err := receive(consumer)
			if err != nil {
				return err
			}
			var found order
			return first(message.GetSchemaValue(&found), same(found, order{Number: 7, Item: "true"}), expectNothing(consumer))
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// deadLetters: each aborted acknowledgement counts as a delivery that failed.
func (r *run) deadLetters() error {
	p := r.pair("letters")
	dead, err := r.client.Subscribe(pulsar.ConsumerOptions{
		Topic: r.topic("dead"), SubscriptionName: "s", SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	if err != nil {
		return err
	}
	defer dead.Close()
	p.consumer.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: r.topic("dead")}
	return r.opened(p, func(consumer pulsar.Consumer, producer pulsar.Producer) error {
		if err := r.within(true, func(in pulsar.Transaction) error { return send(producer, "bad", in) }); err != nil {
			return err
		}
		for count := uint32(0); count < 3; count++ {
			messages, err := expectMessages(consumer, "bad")
			if err != nil {
				return err
			}
			err = r.within(false, func(in pulsar.Transaction) error { return acknowledge(consumer, messages, in) })
			if err := first(err, same(messages[0].RedeliveryCount(), count)); err != nil {
				return err
			}
		}
		if err := expectNothing(consumer); err != nil {
			return err
		}
		_, err := expectMessages(dead, "bad")
		return err
	})
}

// negative: the other message comes again; the one whose acknowledgement is pending does so after the abort.
func (r *run) negative() error {
	return r.opened(r.pair("negative"), func(consumer pulsar.Consumer, producer pulsar.Producer) error {
		if err := first(send(producer, "other", nil), send(producer, "pending", nil)); err != nil {
			return err
		}
		messages, _, err := receiveAll(consumer, 2)
		if err != nil {
			return err
		}
		err = r.within(false, func(in pulsar.Transaction) error {
			if err := acknowledge(consumer, messages[1:], in); err != nil {
				return err
			}
			consumer.Nack(messages[0])
			consumer.Nack(messages[1])
			_, err := expectMessages(consumer, "other")
			return first(err, expectNothing(consumer))
		})
		if err != nil {
			return err
		}
		_, err = expectMessages(consumer, "pending")
		return err
	})
}

func (r *run) readerOfTransactions() error {
	topic := r.topic("reader")
	reader, err := r.client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()})
	if err != nil {
		return err
	}
	defer reader.Close()
	producer, err := r.client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	if err != nil {
		return err
	}
	defer producer.Close()
	err = r.within(true, func(open pulsar.Transaction) error {
		if err := first(send(producer, "open", open), send(producer, "behind", nil)); err != nil {
			return err
		}
		return same(reader.HasNext(), false)
	})
	if err != nil {
		return err
	}
	if err := r.within(false, func(aborted pulsar.Transaction) error { return send(producer, "aborted", aborted) }); err != nil {
		return err
	}
	var found []string
	for reader.HasNext() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		message, err := reader.Next(ctx)
		cancel()
		if err != nil {
			return err
		}
		found = append(found, string(message.Payload()))
	}
	return same(found, []string{"open", "behind"})
}

func (r *run) severalTopics() error {
	p := r.pair("several-a")
	p.consumer.Topic, p.consumer.Topics = "", []string{r.topic("several-a"), r.topic("several-b")}
	return r.opened(p, func(consumer pulsar.Consumer, one pulsar.Producer) error {
		p.producer.Topic = r.topic("several-b")
		other, err := r.client.CreateProducer(p.producer)
		if err != nil {
			return err
		}
		defer other.Close()
		for _, commit := range []bool{false, true} {
			err := r.within(commit, func(in pulsar.Transaction) error {
				return first(send(one, fmt.Sprint("a ", commit), in), send(other, fmt.Sprint("b ", commit), in))
			})
			if err != nil {
				return err
			}
		}
		return r.acknowledgeTwice(consumer, "a true", "b true")
	})
}

type keys struct{ public, private []byte }

func newKeys() (keys, error) {
	pair, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return keys{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(&pair.PublicKey)
	if err != nil {
		return keys{}, err
	}
	private := x509.MarshalPKCS1PrivateKey(pair)
	block := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return keys{block("PUBLIC KEY", public), block("RSA PRIVATE KEY", private)}, nil
}

func (k keys) PublicKey(name string, metadata map[string]string) (*crypto.EncryptionKeyInfo, error) {
	return crypto.NewEncryptionKeyInfo(name, k.public, metadata), nil
}

func (k keys) PrivateKey(name string, metadata map[string]string) (*crypto.EncryptionKeyInfo, error) {
	return crypto.NewEncryptionKeyInfo(name, k.private, metadata), nil
}
