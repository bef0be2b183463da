// The official Go client through every scenario; see ../README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const timeout = 30 * time.Second

var codecs = []struct {
	name string
	kind pulsar.CompressionType
}{{"NONE", pulsar.NoCompression}, {"LZ4", pulsar.LZ4}, {"ZLIB", pulsar.ZLib}, {"ZSTD", pulsar.ZSTD}, {"SNAPPY", pulsar.SNAPPY}}

type run struct {
	client       pulsar.Client
	url          string
	prefix       string
	messages     int
	syncMessages int
}

func main() {
	r := &run{}
	scenario := flag.String("scenario", "", "")
	flag.StringVar(&r.url, "url", "", "")
	flag.StringVar(&r.prefix, "prefix", "", "")
	flag.IntVar(&r.messages, "messages", 10000, "")
	flag.IntVar(&r.syncMessages, "sync-messages", 500, "")
	p := proofs{}
	flag.Var(p, "proof", "NAME=VALUE, for the scenario secured")
	flag.Parse()
	if *scenario == "secured" {
		r.secured(p)
		return
	}
	if *scenario == "transactions" {
		transactions(r.url, r.prefix)
		return
	}
	if *scenario == "transaction-features" {
		transactionFeatures(r.url, r.prefix)
		return
	}
	if *scenario == "moved-transactions" {
		movedTransactions(r.url, r.prefix)
		return
	}
	r.client = connect(r.url)
	scenarios := map[string]func(){
		"async-batched":   func() { r.asynchronous(true) },
		"async-unbatched": func() { r.asynchronous(false) },
		"sync-batched":    func() { r.synchronous(true) },
		"sync-unbatched":  func() { r.synchronous(false) },
		"reader":          func() { r.each(r.reader) },
		"seek":            func() { r.each(r.seek) },
		"shared":          r.shared,
		"exclusive":       r.exclusive,
		"restart":         r.restart,
		"routing":         r.routing,
	}
	body, known := scenarios[*scenario]
	if !known {
		log.Fatalf("unknown scenario %q", *scenario)
	}
	body()
	r.client.Close()
}

func quiet() plog.Logger {
	logger := logrus.New()
	logger.SetOutput(io.Discard)
	return plog.NewLoggerWithLogrus(logger)
}

func connect(url string) pulsar.Client {
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:              url,
		OperationTimeout: timeout,
		Logger:           quiet(),
	})
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func payload(index int) []byte {
	return []byte(fmt.Sprintf("%d:%s", index, strings.Repeat("x", index%100)))
}

func number(data []byte) (index int) {
	if _, err := fmt.Sscanf(string(data), "%d:", &index); err != nil {
		return -1
	}
	return index
}

func batching(batched bool) string {
	if batched {
		return "batched"
	}
	return "unbatched"
}

func (r *run) topic(name string) string {
	return "persistent://public/default/" + r.prefix + "-" + name
}

// each runs a scenario without and with batches.
func (r *run) each(scenario func(bool) error) {
	for _, batched := range []bool{false, true} {
		if err := scenario(batched); err != nil {
			check("preparing "+batching(batched), 0, func() error { return err })
		}
	}
}

func (r *run) producer(topic string, batched bool, codec pulsar.CompressionType) (pulsar.Producer, error) {
	return r.client.CreateProducer(pulsar.ProducerOptions{
		Topic:                   topic,
		DisableBatching:         !batched,
		BatchingMaxPublishDelay: time.Millisecond,
		CompressionType:         codec,
		MaxPendingMessages:      1000,
		SendTimeout:             timeout,
	})
}

func (r *run) subscribe(topic string) (pulsar.Consumer, error) {
	return r.client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "s", StartMessageIDInclusive: true,
	})
}

// keep subscribes and leaves: from now on the broker keeps all messages, consumed or not.
func (r *run) keep(topic string) error {
	consumer, err := r.client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "keep"})
	if err == nil {
		consumer.Close()
	}
	return err
}

// sendAll sends without waiting for each; the ids, in order.
func sendAll(producer pulsar.Producer, from, count int) ([]pulsar.MessageID, error) {
	ids := make([]pulsar.MessageID, count)
	errs := make([]error, count)
	var left sync.WaitGroup
	left.Add(count)
	for index := 0; index < count; index++ {
		message := &pulsar.ProducerMessage{Payload: payload(from + index)}
		producer.SendAsync(context.Background(), message,
			func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
				ids[index], errs[index] = id, err
				left.Done()
			})
	}
	err := producer.Flush()
	left.Wait()
	return ids, first(append(errs, err)...)
}

func expectMessage(message pulsar.Message, index int) error {
	if string(message.Payload()) != string(payload(index)) {
		return fmt.Errorf("message %d instead of %d", number(message.Payload()), index)
	}
	return nil
}

func receiveFrom(consumer pulsar.Consumer, from, count int) error {
	for index := from; index < from+count; index++ {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		message, err := consumer.Receive(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("message %d: %w", index, err)
		}
		if err := first(expectMessage(message, index), consumer.Ack(message)); err != nil {
			return err
		}
	}
	return nil
}

func expectNothing(consumer pulsar.Consumer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if message, err := consumer.Receive(ctx); err == nil {
		return fmt.Errorf("unexpected message %d", number(message.Payload()))
	}
	return nil
}

func readFrom(reader pulsar.Reader, from, count int) error {
	for index := from; index < from+count; index++ {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		message, err := reader.Next(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("message %d: %w", index, err)
		}
		if err := expectMessage(message, index); err != nil {
			return err
		}
	}
	return nil
}

// collect receives from the consumer's channel, in the background.
func collect(consumer pulsar.Consumer, count int) <-chan error {
	done := make(chan error, 1)
	go func() {
		for index := 0; index < count; index++ {
			select {
			case message := <-consumer.Chan():
				if err := first(expectMessage(message.Message, index), consumer.Ack(message.Message)); err != nil {
					done <- err
					return
				}
			case <-time.After(timeout):
				done <- fmt.Errorf("%d of %d messages arrived, and no more", index, count)
				return
			}
		}
		done <- nil
	}()
	return done
}

// ends makes a consumer and a producer on a topic of its own and closes them after the body.
func (r *run) ends(
	topic string, batched bool, codec pulsar.CompressionType, body func(pulsar.Consumer, pulsar.Producer) error,
) error {
	consumer, err := r.subscribe(topic)
	if err != nil {
		return err
	}
	defer consumer.Close()
	producer, err := r.producer(topic, batched, codec)
	if err != nil {
		return err
	}
	defer producer.Close()
	return body(consumer, producer)
}

func (r *run) asynchronous(batched bool) {
	for _, codec := range codecs {
		topic := r.topic(fmt.Sprintf("async-%t-%s", batched, codec.name))
		check(codec.name+" "+batching(batched)+" async", r.messages, func() error {
			return r.ends(topic, batched, codec.kind, func(consumer pulsar.Consumer, producer pulsar.Producer) error {
				received := collect(consumer, r.messages)
				_, err := sendAll(producer, 0, r.messages)
				return first(err, <-received, expectNothing(consumer))
			})
		})
	}
}

func (r *run) synchronous(batched bool) {
	for _, codec := range codecs {
		topic := r.topic(fmt.Sprintf("sync-%t-%s", batched, codec.name))
		check(codec.name+" "+batching(batched)+" sync", r.syncMessages, func() error {
			return r.ends(topic, batched, codec.kind, func(consumer pulsar.Consumer, producer pulsar.Producer) error {
				for index := 0; index < r.syncMessages; index++ {
					message := &pulsar.ProducerMessage{Payload: payload(index)}
					if _, err := producer.Send(context.Background(), message); err != nil {
						return err
					}
				}
				return first(receiveFrom(consumer, 0, r.syncMessages), expectNothing(consumer))
			})
		})
	}
}

func (r *run) withReader(topic string, start pulsar.MessageID, inclusive bool, body func(pulsar.Reader) error) error {
	reader, err := r.client.CreateReader(pulsar.ReaderOptions{
		Topic: topic, StartMessageID: start, StartMessageIDInclusive: inclusive,
	})
	if err != nil {
		return err
	}
	defer reader.Close()
	return body(reader)
}

func (r *run) reader(batched bool) error {
	topic := r.topic(fmt.Sprintf("reader-%t", batched))
	err := r.keep(topic)
	if err != nil {
		return err
	}
	producer, err := r.producer(topic, batched, pulsar.NoCompression)
	if err != nil {
		return err
	}
	defer producer.Close()
	ids, err := sendAll(producer, 0, 100)
	if err != nil {
		return err
	}
	check("reader from earliest, "+batching(batched), 100, func() error {
		return r.withReader(topic, pulsar.EarliestMessageID(), false, func(reader pulsar.Reader) error {
			if err := readFrom(reader, 0, 100); err != nil {
				return err
			}
			if reader.HasNext() {
				return fmt.Errorf("more than all messages available")
			}
			return nil
		})
	})
	check("reader from an id, "+batching(batched), 99, func() error {
		return first(
			r.withReader(topic, ids[50], false, func(reader pulsar.Reader) error { return readFrom(reader, 51, 49) }),
			r.withReader(topic, ids[50], true, func(reader pulsar.Reader) error { return readFrom(reader, 50, 50) }),
		)
	})
	check("reader from latest, "+batching(batched), 10, func() error {
		return r.withReader(topic, pulsar.LatestMessageID(), false, func(reader pulsar.Reader) error {
			if reader.HasNext() {
				return fmt.Errorf("a message available behind the latest")
			}
			_, err := sendAll(producer, 100, 10)
			if err := first(err, readFrom(reader, 100, 10)); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			if message, err := reader.Next(ctx); err == nil {
				return fmt.Errorf("unexpected message %d", number(message.Payload()))
			}
			return nil
		})
	})
	return nil
}

func (r *run) seek(batched bool) error {
	topic := r.topic(fmt.Sprintf("seek-%t", batched))
	if err := r.keep(topic); err != nil {
		return err
	}
	return r.ends(topic, batched, pulsar.NoCompression, func(consumer pulsar.Consumer, producer pulsar.Producer) error {
		ids, err := sendAll(producer, 0, 50)
		time.Sleep(100 * time.Millisecond)
		between := time.Now()
		time.Sleep(100 * time.Millisecond)
		_, later := sendAll(producer, 50, 50)
		if err := first(err, later, receiveFrom(consumer, 0, 100)); err != nil {
			return err
		}
		check("seek to an id, "+batching(batched), 70, func() error {
			return first(consumer.Seek(ids[30]), receiveFrom(consumer, 30, 70), expectNothing(consumer))
		})
		check("seek to a time, "+batching(batched), 50, func() error {
			return first(consumer.SeekByTime(between), receiveFrom(consumer, 50, 50), expectNothing(consumer))
		})
		check("seek to earliest, "+batching(batched), 100, func() error {
			// EarliestMessageID has no partition, which this client refuses in a seek.
			earliest := pulsar.NewMessageID(-1, -1, -1, 0)
			return first(consumer.Seek(earliest), receiveFrom(consumer, 0, 100), expectNothing(consumer))
		})
		return nil
	})
}
