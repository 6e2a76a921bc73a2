// How franz-go tells a cluster who it is, and what it is told then; see tests/compatibility/libraries/test_logins.py.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// login is a certificate alone where there is no mechanism.
type login struct {
	Mechanism   string
	User        string
	Password    string
	IsToken     bool
	Token       string // of OAUTHBEARER
	Authority   string // whom to trust, a file
	Certificate string // a file, with its key
}

func (l login) mechanism() sasl.Mechanism {
	known := scram.Auth{User: l.User, Pass: l.Password, IsToken: l.IsToken}
	switch l.Mechanism {
	case "PLAIN":
		return plain.Auth{User: l.User, Pass: l.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return known.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return known.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: l.Token}.AsMechanism()
	}
	panic(l.Mechanism)
}

func (l login) options() []kgo.Opt {
	authority, err := os.ReadFile(l.Authority)
	must(err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	if l.Certificate != "" {
		certificate, err := tls.LoadX509KeyPair(l.Certificate, l.Certificate)
		must(err)
		// Whatever authorities the server names: one of another is what it is to refuse.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &certificate, nil
		}
	}
	options := []kgo.Opt{kgo.DialTLSConfig(config)}
	if l.Mechanism != "" {
		options = append(options, kgo.SASL(l.mechanism()))
	}
	return options
}

// connections counts those that were opened.
type connections struct{ opened atomic.Int64 }

var _ kgo.HookBrokerConnect = (*connections)(nil)

func (c *connections) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, _ error) {
	c.opened.Add(1)
}

// newClient asks a broker for something first: a producer and a consumer would go on trying to connect,
// without a word, whatever the reason that they cannot.
func newClient(s settings, more ...kgo.Opt) *kgo.Client {
	options := append(s.Login.options(), kgo.SeedBrokers(s.Servers...), kgo.DefaultProduceTopic(s.Topic))
	client, err := kgo.NewClient(append(options, more...)...)
	must(err)
	must(client.Ping(context.Background()))
	return client
}

// produces records with these keys and values.
func produces(s settings) {
	client := newClient(s)
	records := make([]*kgo.Record, len(s.Records))
	for number, record := range s.Records {
		records[number] = &kgo.Record{Key: []byte(record[0]), Value: []byte(record[1])}
	}
	must(client.ProduceSync(context.Background(), records...).FirstErr())
	client.Close()
}

// consumes as many records as a member of a group.
func consumes(s settings) {
	client := newClient(
		s,
		kgo.ConsumerGroup(s.Group),
		kgo.ConsumeTopics(s.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	for count := 0; count < s.Count; {
		fetches := client.PollFetches(context.Background())
		must(fetches.Err())
		fetches.EachRecord(func(read *kgo.Record) {
			say(map[string]any{"record": []string{string(read.Key), string(read.Value)}})
			count++
		})
	}
	client.Close()
}

// producesSteadily says of each record when it was sent (ms) and how many connections there are by
// then, until one is refused.
func producesSteadily(s settings) {
	opened := &connections{}
	client := newClient(s, kgo.WithHooks(opened))
	for running := stopped(); running.Err() == nil; {
		began := time.Now().UnixMilli()
		err := client.ProduceSync(context.Background(), kgo.StringRecord("a record")).FirstErr()
		var refused *kerr.Error
		if errors.As(err, &refused) {
			say(map[string]any{"refused": refused.Message, "connections": opened.opened.Load()})
			break
		}
		must(err)
		say(map[string]any{"acknowledged": began, "connections": opened.opened.Load()})
	}
	client.Close()
}
