// What franz-go does in transactions and when it logs in (login.go), one command at a time; see
// tests/compatibility/support/programs.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type settings struct {
	Servers    []string
	Topic      string
	Output     string
	Group      string
	Id         string
	AbortEvery int
	Size       int
	Count      int
	Login      login
	Records    [][2]string
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(line any) {
	must(json.NewEncoder(os.Stdout).Encode(line))
}

// stopped ends with stdin.
func stopped() context.Context {
	running, stop := context.WithCancel(context.Background())
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		must(err)
		stop()
	}()
	return running
}

// copies moves records of one topic to the same partitions of another one, exactly once.
func copies(s settings) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(s.Servers...),
		kgo.TransactionalID(s.Id),
		kgo.TransactionTimeout(10*time.Second),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumerGroup(s.Group),
		kgo.ConsumeTopics(s.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
	)
	must(err)
	running := stopped()
	for number := 1; running.Err() == nil; number++ {
		fetches := session.PollRecords(running, s.Size)
		if errors.Is(fetches.Err0(), context.Canceled) {
			break
		}
		must(fetches.Err0())
		if fetches.NumRecords() == 0 {
			continue
		}
		must(session.Begin())
		fetches.EachRecord(func(read *kgo.Record) {
			session.Produce(context.Background(), &kgo.Record{
				Topic: s.Output, Partition: read.Partition, Key: read.Key, Value: read.Value,
			}, func(_ *kgo.Record, err error) { must(err) })
		})
		must(session.Client().Flush(context.Background())) // or what is aborted would not be sent at all
		committed, err := session.End(context.Background(), kgo.TransactionEndTry(number%s.AbortEvery != 0))
		must(err)
		if committed {
			say(map[string]any{"committed": fetches.NumRecords()})
		} else {
			say(map[string]any{"aborted": fetches.NumRecords()})
		}
	}
	session.Close()
	say(map[string]any{"left": true})
}

func main() {
	var s settings
	must(json.Unmarshal([]byte(os.Args[2]), &s))
	map[string]func(settings){
		"copy":    copies,
		"produce": produces,
		"consume": consumes,
		"steady":  producesSteadily,
	}[os.Args[1]](s)
}
