package main

import (
	"context"
	"errors"
	"log"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

// How a client of the scenario "secured" proves who it is, as NAME=VALUE pairs.
type proofs map[string]string

func (p proofs) String() string { return "" }

func (p proofs) Set(pair string) error {
	name, value, _ := strings.Cut(pair, "=")
	p[name] = value
	return nil
}

// TLS with each provider; what is refused, and how.
func (r *run) secured(p proofs) {
	basic, err := pulsar.NewAuthenticationBasic(p["user"], p["password"])
	if err != nil {
		log.Fatal(err)
	}
	for name, authentication := range map[string]pulsar.Authentication{
		"go-token": pulsar.NewAuthenticationToken(p["token"]),
		"go-basic": basic,
		"go-oauth2": pulsar.NewAuthenticationOAuth2(map[string]string{
			"type":       "client_credentials",
			"issuerUrl":  p["issuer"],
			"audience":   p["audience"],
			"clientId":   "olga",
			"privateKey": "file://" + p["credentials"],
		}),
		"go-certificate": pulsar.NewAuthenticationTLS(p["certificate"], p["key"]),
	} {
		check(name, 1, func() error { return exchangeSecured(p, name, authentication) })
	}
	for name, token := range map[string]string{"unknown": p["wrong"], "not allowed": p["stranger"]} {
		check(name, 0, func() error {
			client := connectSecured(p, pulsar.NewAuthenticationToken(token))
			defer client.Close()
			_, err := client.CreateProducer(pulsar.ProducerOptions{Topic: "persistent://" + p["namespace"] + "/never"})
			if err == nil {
				return errors.New("it was let in")
			}
			return nil
		})
	}
}

func connectSecured(p proofs, authentication pulsar.Authentication) pulsar.Client {
	quiet := logrus.New()
	quiet.SetLevel(logrus.FatalLevel)
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:                   p["tls"],
		TLSTrustCertsFilePath: p["trust"],
		TLSValidateHostname:   true,
		Authentication:        authentication,
		OperationTimeout:      5 * time.Second,
		Logger:                plog.NewLoggerWithLogrus(quiet),
	})
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func exchangeSecured(p proofs, name string, authentication pulsar.Authentication) error {
	client := connectSecured(p, authentication)
	defer client.Close()
	topic := "persistent://" + p["namespace"] + "/" + name
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"})
	if err != nil {
		return err
	}
	defer consumer.Close()
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	if err != nil {
		return err
	}
	defer producer.Close()
	within, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if _, err = producer.Send(within, &pulsar.ProducerMessage{Payload: []byte("content")}); err != nil {
		return err
	}
	message, err := consumer.Receive(within)
	if err != nil {
		return err
	}
	if string(message.Payload()) != "content" {
		return errors.New("something else arrived")
	}
	return nil
}
