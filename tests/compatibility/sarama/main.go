// What sarama does against a cluster, one command at a time; see tests/compatibility/support/programs.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

type settings struct {
	Servers    []string
	Topic      string
	Count      int
	Codec      string
	Idempotent bool
	Group      string
	Strategy   string
	Version    string
	FirstMs    int64
	Output     string
	Id         string
	AbortEvery int
	Size       int
}

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func strategy(name string) sarama.BalanceStrategy {
	switch name {
	case "range":
		return sarama.NewBalanceStrategyRange()
	case "roundrobin":
		return sarama.NewBalanceStrategyRoundRobin()
	case "sticky":
		return sarama.NewBalanceStrategySticky()
	case "cooperative-sticky":
		return sarama.NewBalanceStrategyCooperativeSticky()
	}
	panic("no strategy " + name)
}

var speaking sync.Mutex

func say(line any) {
	speaking.Lock()
	defer speaking.Unlock()
	must(json.NewEncoder(os.Stdout).Encode(line))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func got[T any](value T, err error) T {
	must(err)
	return value
}

func configure(s settings) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "sarama-program"
	if s.Version != "" {
		config.Version = got(sarama.ParseKafkaVersion(s.Version))
	}
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Return.Errors = true
	if s.Strategy != "" {
		config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy(s.Strategy)}
	}
	return config
}

func message(s settings, number int) *sarama.ProducerMessage {
	made := &sarama.ProducerMessage{
		Topic:     s.Topic,
		Key:       sarama.StringEncoder(fmt.Sprintf("key-%d", number%50)),
		Value:     sarama.StringEncoder(fmt.Sprintf("value-%d", number)),
		Timestamp: time.UnixMilli(s.FirstMs + int64(number)),
		Metadata:  number,
	}
	if configure(s).Version.IsAtLeast(sarama.V0_11_0_0) {
		made.Headers = []sarama.RecordHeader{{Key: []byte("number"), Value: fmt.Append(nil, number)}}
	}
	return made
}

func produce(s settings) {
	config := configure(s)
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Compression = codecs[s.Codec]
	config.Producer.Return.Successes = true
	config.Producer.Flush.MaxMessages = 100
	if s.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer := got(sarama.NewAsyncProducer(s.Servers, config))
	go func() {
		for number := range s.Count {
			producer.Input() <- message(s, number)
		}
		producer.AsyncClose()
	}()
	acknowledged := [][3]int64{}
	var failed sync.WaitGroup
	failed.Go(func() {
		for failure := range producer.Errors() {
			must(failure)
		}
	})
	for sent := range producer.Successes() {
		place := [3]int64{int64(sent.Metadata.(int)), int64(sent.Partition), sent.Offset}
		acknowledged = append(acknowledged, place)
	}
	failed.Wait()
	say(map[string]any{"acknowledged": acknowledged})
}

func tell(read *sarama.ConsumerMessage) {
	headers := map[string]string{}
	for _, header := range read.Headers {
		headers[string(header.Key)] = string(header.Value)
	}
	say(map[string]any{"record": []any{
		read.Partition, read.Offset, string(read.Key), string(read.Value), read.Timestamp.UnixMilli(), headers,
	}})
}

func read(s settings) {
	consumer := got(sarama.NewConsumer(s.Servers, configure(s)))
	records := make(chan *sarama.ConsumerMessage)
	for _, partition := range got(consumer.Partitions(s.Topic)) {
		reader := got(consumer.ConsumePartition(s.Topic, partition, sarama.OffsetOldest))
		go func() {
			for failure := range reader.Errors() {
				must(failure)
			}
		}()
		go func() {
			for read := range reader.Messages() {
				records <- read
			}
		}()
	}
	for range s.Count {
		tell(<-records)
	}
}

type member struct{}

func (member) Setup(session sarama.ConsumerGroupSession) error {
	for _, partitions := range session.Claims() {
		slices.Sort(partitions)
		say(map[string]any{"assigned": partitions})
		return nil
	}
	say(map[string]any{"assigned": []int32{}})
	return nil
}

func (member) Cleanup(sarama.ConsumerGroupSession) error {
	say(map[string]any{"revoked": true})
	return nil
}

func (member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	say(map[string]any{"claimed": claim.Partition()})
	for read := range claim.Messages() {
		tell(read)
		session.MarkMessage(read, "by sarama")
	}
	say(map[string]any{"released": claim.Partition()})
	return nil
}

// group reads as a member until stdin ends.
func group(s settings) {
	config := configure(s)
	config.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 30 * time.Second
	reader := got(sarama.NewConsumerGroup(s.Servers, s.Group, config))
	go func() {
		for failure := range reader.Errors() {
			fmt.Fprintln(os.Stderr, failure)
		}
	}()
	running, stop := context.WithCancel(context.Background())
	go func() {
		got(io.Copy(io.Discard, bufio.NewReader(os.Stdin)))
		stop()
	}()
	for running.Err() == nil {
		must(reader.Consume(running, []string{s.Topic}, member{}))
	}
	must(reader.Close())
	say(map[string]any{"left": true})
}

func admin(s settings) {
	admin := got(sarama.NewClusterAdmin(s.Servers, configure(s)))
	client := got(sarama.NewClient(s.Servers, configure(s)))
	found := map[string]any{}
	minute := "60000"
	detail := &sarama.TopicDetail{
		NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &minute},
	}
	must(admin.CreateTopic(s.Topic, detail, false))
	again := admin.CreateTopic(s.Topic, detail, false)
	found["CreateTopic again"] = again.Error()
	listed := got(admin.ListTopics())[s.Topic]
	found["ListTopics"] = []any{listed.NumPartitions, listed.ReplicationFactor, *listed.ConfigEntries["retention.ms"]}
	must(admin.CreatePartitions(s.Topic, 3, nil, false))
	described := got(admin.DescribeTopics([]string{s.Topic}))[0]
	found["DescribeTopics"] = []any{described.Err, len(described.Partitions), described.Partitions[0].Isr}
	hour := "3600000"
	change := map[string]sarama.IncrementalAlterConfigsEntry{
		"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &hour},
	}
	must(admin.IncrementalAlterConfig(sarama.TopicResource, s.Topic, change, false))
	resource := sarama.ConfigResource{
		Type: sarama.TopicResource, Name: s.Topic, ConfigNames: []string{"retention.ms"},
	}
	for _, entry := range got(admin.DescribeConfig(resource)) {
		found["DescribeConfig"] = []string{entry.Name, entry.Value}
	}
	nodes, controller, err := admin.DescribeCluster()
	must(err)
	found["DescribeCluster"] = []any{len(nodes), controller}

	config := configure(s)
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	producer := got(sarama.NewSyncProducer(s.Servers, config))
	messages := []*sarama.ProducerMessage{}
	for number := range 10 {
		messages = append(messages, message(s, number))
	}
	must(producer.SendMessages(messages))
	must(producer.Close())
	places := map[string]map[int32]int64{s.Topic: {0: sarama.OffsetNewest, 1: sarama.OffsetOldest}}
	offsets := got(admin.ListOffsets(places, nil))[s.Topic]
	found["ListOffsets"] = []int64{offsets[0].Offset, offsets[1].Offset}
	found["Client.GetOffset (time)"] = got(client.GetOffset(s.Topic, 0, s.FirstMs+3))
	must(admin.DeleteRecords(s.Topic, map[int32]int64{0: 4}))
	found["DeleteRecords"] = got(client.GetOffset(s.Topic, 0, sarama.OffsetOldest))

	committed := map[string]map[int32]sarama.OffsetAndMetadata{
		s.Topic: {0: {Offset: 7, Metadata: "by hand", LeaderEpoch: -1}, 1: {Offset: 0, LeaderEpoch: -1}},
	}
	answer := got(admin.AlterConsumerGroupOffsets(s.Group, committed, nil))
	found["AlterConsumerGroupOffsets"] = answer.Errors[s.Topic]
	fetched := got(admin.ListConsumerGroupOffsets(s.Group, map[string][]int32{s.Topic: {0, 1, 2}}))
	block := fetched.GetBlock(s.Topic, 0)
	found["ListConsumerGroupOffsets"] = []any{
		block.Offset, block.Metadata, fetched.GetBlock(s.Topic, 1).Offset, fetched.GetBlock(s.Topic, 2).Offset,
	}
	_, listedToo := got(admin.ListConsumerGroups())[s.Group]
	found["ListConsumerGroups"] = listedToo
	found["DescribeConsumerGroups"] = got(admin.DescribeConsumerGroups([]string{s.Group}))[0].State
	must(admin.DeleteConsumerGroupOffset(s.Group, s.Topic, 1))
	fetched = got(admin.ListConsumerGroupOffsets(s.Group, map[string][]int32{s.Topic: {0, 1}}))
	found["DeleteConsumerGroupOffset"] = []int64{fetched.GetBlock(s.Topic, 0).Offset, fetched.GetBlock(s.Topic, 1).Offset}
	must(admin.DeleteConsumerGroup(s.Group))
	_, listedToo = got(admin.ListConsumerGroups())[s.Group]
	found["DeleteConsumerGroup"] = listedToo
	directories := []string{}
	for _, all := range got(admin.DescribeLogDirs([]int32{nodes[0].ID()})) {
		for _, directory := range all {
			directories = append(directories, directory.Path)
		}
	}
	found["DescribeLogDirs"] = directories
	must(admin.DeleteTopic(s.Topic))
	_, listedToo = got(admin.ListTopics())[s.Topic]
	found["DeleteTopic"] = listedToo
	must(client.Close())
	must(admin.Close())
	say(found)
}

func transactions(s settings) sarama.AsyncProducer {
	config := configure(s)
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Transaction.ID = s.Id
	config.Producer.Transaction.Timeout = 10 * time.Second
	config.Net.MaxOpenRequests = 1
	return got(sarama.NewAsyncProducer(s.Servers, config))
}

// copier moves records of one topic to the same partitions of another one, exactly once.
type copier struct {
	member
	settings
	producer sarama.AsyncProducer
	number   *int
	turn     *sync.Mutex
}

func (c copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for read := range claim.Messages() {
		batch := []*sarama.ConsumerMessage{read}
		for len(batch) < c.Size && len(claim.Messages()) > 0 {
			if next, there := <-claim.Messages(); there {
				batch = append(batch, next)
			}
		}
		for !c.transact(batch) {
		}
	}
	return nil
}

func (c copier) transact(batch []*sarama.ConsumerMessage) bool {
	c.turn.Lock() // a producer has one transaction at a time
	defer c.turn.Unlock()
	*c.number++
	must(c.producer.BeginTxn())
	for _, read := range batch {
		c.producer.Input() <- &sarama.ProducerMessage{
			Topic: c.Output, Partition: read.Partition,
			Key: sarama.ByteEncoder(read.Key), Value: sarama.ByteEncoder(read.Value),
		}
	}
	must(c.producer.AddMessageToTxn(batch[len(batch)-1], c.Group, nil))
	if *c.number%c.AbortEvery == 0 {
		must(c.producer.AbortTxn())
		say(map[string]any{"aborted": len(batch)})
		return false
	}
	must(c.producer.CommitTxn())
	say(map[string]any{"committed": len(batch)})
	return true
}

// copies runs until stdin ends.
func copies(s settings) {
	config := configure(s)
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	reader := got(sarama.NewConsumerGroup(s.Servers, s.Group, config))
	producer := transactions(s)
	go func() {
		for failure := range producer.Errors() {
			must(failure)
		}
	}()
	running, stop := context.WithCancel(context.Background())
	go func() {
		got(io.Copy(io.Discard, bufio.NewReader(os.Stdin)))
		stop()
	}()
	handler := copier{settings: s, producer: producer, number: new(int), turn: new(sync.Mutex)}
	for running.Err() == nil {
		must(reader.Consume(running, []string{s.Topic}, handler))
	}
	must(reader.Close())
	must(producer.Close())
	say(map[string]any{"left": true})
}

func main() {
	commands := map[string]func(settings){
		"produce": produce, "read": read, "group": group, "admin": admin, "copy": copies,
	}
	var s settings
	must(json.Unmarshal([]byte(os.Args[2]), &s))
	commands[os.Args[1]](s)
}
