// What kafka-go does against a cluster, one command at a time; see tests/compatibility/support/programs.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

type settings struct {
	Servers  []string
	Topic    string
	Count    int
	Codec    string
	Group    string
	Strategy string
	FirstMs  int64
}

var codecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

var strategies = map[string]kafka.GroupBalancer{
	"range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{},
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

// none is for answers that have an error for each thing that was asked.
func none(errors map[string]error) {
	for _, err := range errors {
		must(err)
	}
}

var speaking sync.Mutex

func say(line any) {
	speaking.Lock()
	defer speaking.Unlock()
	must(json.NewEncoder(os.Stdout).Encode(line))
}

func tell(read kafka.Message) {
	headers := map[string]string{}
	for _, header := range read.Headers {
		headers[header.Key] = string(header.Value)
	}
	say(map[string]any{"record": []any{
		read.Partition, read.Offset, string(read.Key), string(read.Value), read.Time.UnixMilli(), headers,
	}})
}

func message(s settings, number int) kafka.Message {
	return kafka.Message{
		Key:        fmt.Appendf(nil, "key-%d", number%50),
		Value:      fmt.Appendf(nil, "value-%d", number),
		Headers:    []kafka.Header{{Key: "number", Value: fmt.Append(nil, number)}},
		Time:       time.UnixMilli(s.FirstMs + int64(number)),
		WriterData: number,
	}
}

func produce(s settings) {
	acknowledged := [][3]int64{}
	var adding sync.Mutex
	writer := &kafka.Writer{
		Addr:         kafka.TCP(s.Servers...),
		Topic:        s.Topic,
		Balancer:     kafka.Murmur2Balancer{Consistent: true},
		Compression:  codecs[s.Codec],
		RequiredAcks: kafka.RequireAll,
		BatchSize:    100,
		BatchTimeout: 10 * time.Millisecond,
		Completion: func(sent []kafka.Message, err error) {
			must(err)
			adding.Lock()
			defer adding.Unlock()
			for _, one := range sent {
				place := [3]int64{int64(one.WriterData.(int)), int64(one.Partition), one.Offset}
				acknowledged = append(acknowledged, place)
			}
		},
	}
	messages := []kafka.Message{}
	for number := range s.Count {
		messages = append(messages, message(s, number))
	}
	must(writer.WriteMessages(context.Background(), messages...))
	must(writer.Close())
	say(map[string]any{"acknowledged": acknowledged})
}

func read(s settings) {
	first := got(kafka.Dial("tcp", s.Servers[0]))
	partitions := got(first.ReadPartitions(s.Topic))
	must(first.Close())
	records := make(chan kafka.Message)
	for _, partition := range partitions {
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: s.Servers, Topic: s.Topic, Partition: partition.ID, MaxWait: 100 * time.Millisecond,
		})
		go func() {
			for {
				records <- got(reader.ReadMessage(context.Background()))
			}
		}()
	}
	for range s.Count {
		tell(<-records)
	}
}

// group reads as a member until stdin ends.
func group(s settings) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:        s.Servers,
		GroupID:        s.Group,
		Topic:          s.Topic,
		GroupBalancers: []kafka.GroupBalancer{strategies[s.Strategy]},
		StartOffset:    kafka.FirstOffset,
		MaxWait:        100 * time.Millisecond,
		ErrorLogger: kafka.LoggerFunc(func(text string, arguments ...any) {
			fmt.Fprintf(os.Stderr, text+"\n", arguments...)
		}),
	})
	running, stop := context.WithCancel(context.Background())
	go func() {
		got(io.Copy(io.Discard, os.Stdin))
		stop()
	}()
	for {
		message, err := reader.FetchMessage(running)
		if errors.Is(err, context.Canceled) {
			break
		}
		must(err)
		tell(message)
		must(reader.CommitMessages(context.Background(), message))
	}
	must(reader.Close())
	say(map[string]any{"left": true})
}

func committed(client *kafka.Client, s settings, partitions ...int) []kafka.OffsetFetchPartition {
	answer := got(client.OffsetFetch(context.Background(), &kafka.OffsetFetchRequest{
		GroupID: s.Group, Topics: map[string][]int{s.Topic: partitions},
	}))
	must(answer.Error)
	return answer.Topics[s.Topic]
}

func topics(s settings, client *kafka.Client, found map[string]any) {
	now := context.Background()
	wanted := &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: s.Topic, NumPartitions: 2, ReplicationFactor: 1,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "60000"}},
	}}}
	none(got(client.CreateTopics(now, wanted)).Errors)
	again := got(client.CreateTopics(now, wanted)).Errors[s.Topic]
	found["CreateTopics again"] = errors.Is(again, kafka.TopicAlreadyExists)
	none(got(client.CreatePartitions(now, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: s.Topic, Count: 3}},
	})).Errors)
	// Not Client.Metadata: it answers from a cache of some seconds.
	connection := got(kafka.Dial("tcp", s.Servers[0]))
	found["Conn.ReadPartitions"] = len(got(connection.ReadPartitions(s.Topic)))
	found["Conn.Brokers"] = len(got(connection.Brokers()))
	must(connection.Close())
	changed := got(client.IncrementalAlterConfigs(now, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: s.Topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{
				Name: "retention.ms", Value: "3600000", ConfigOperation: kafka.ConfigOperationSet,
			}},
		}},
	}))
	must(changed.Resources[0].Error)
	described := got(client.DescribeConfigs(now, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: s.Topic, ConfigNames: []string{"retention.ms"},
		}},
	}))
	must(described.Resources[0].Error)
	for _, entry := range described.Resources[0].ConfigEntries {
		found["DescribeConfigs"] = []string{entry.ConfigName, entry.ConfigValue}
	}
}

func offsets(s settings, client *kafka.Client, found map[string]any) {
	now := context.Background()
	leader := got(kafka.DialLeader(now, "tcp", s.Servers[0], s.Topic, 0))
	messages := []kafka.Message{}
	for number := range 10 {
		messages = append(messages, message(s, number))
	}
	got(leader.WriteMessages(messages...))
	first, last, err := leader.ReadOffsets()
	must(err)
	found["Conn.WriteMessages"] = []int64{first, last}
	got(leader.Seek(6, kafka.SeekAbsolute))
	found["Conn.ReadMessage"] = string(got(leader.ReadMessage(1_000_000)).Value)
	must(leader.Close())
	listed := got(client.ListOffsets(now, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{s.Topic: {
			kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0), kafka.TimeOffsetOf(0, time.UnixMilli(s.FirstMs+3)),
		}},
	})).Topics[s.Topic][0]
	must(listed.Error)
	by_time := []int64{}
	for offset := range listed.Offsets {
		by_time = append(by_time, offset)
	}
	found["ListOffsets"] = []any{listed.FirstOffset, listed.LastOffset, by_time}
	fetched := got(client.Fetch(now, &kafka.FetchRequest{
		Topic: s.Topic, Partition: 0, Offset: 8, MinBytes: 1, MaxBytes: 1_000_000, MaxWait: time.Second,
	}))
	must(fetched.Error)
	record := got(fetched.Records.ReadRecord())
	for record.Offset < 8 { // the batch comes whole
		record = got(fetched.Records.ReadRecord())
	}
	found["Fetch"] = []any{fetched.HighWatermark, record.Offset, string(got(kafka.ReadAll(record.Value)))}
	identity := got(client.InitProducerID(now, &kafka.InitProducerIDRequest{}))
	must(identity.Error)
	found["InitProducerID"] = identity.Producer.ProducerEpoch
}

func groups(s settings, client *kafka.Client, found map[string]any) {
	now := context.Background()
	asked := &kafka.OffsetCommitRequest{
		GroupID: s.Group, GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{s.Topic: {
			{Partition: 0, Offset: 7, Metadata: "by hand"}, {Partition: 1, Offset: 0},
		}},
	}
	for _, partition := range got(client.OffsetCommit(now, asked)).Topics[s.Topic] {
		must(partition.Error)
	}
	kept := committed(client, s, 0)[0]
	found["OffsetFetch"] = []any{kept.CommittedOffset, kept.Metadata}
	described := got(client.DescribeGroups(now, &kafka.DescribeGroupsRequest{GroupIDs: []string{s.Group}}))
	must(described.Groups[0].Error)
	found["DescribeGroups"] = described.Groups[0].GroupState
	coordinator := got(client.FindCoordinator(now, &kafka.FindCoordinatorRequest{
		Key: s.Group, KeyType: kafka.CoordinatorKeyTypeConsumer,
	}))
	must(coordinator.Error)
	listed := func() bool {
		answer := got(client.ListGroups(now, &kafka.ListGroupsRequest{}))
		must(answer.Error)
		for _, one := range answer.Groups {
			if one.GroupID == s.Group {
				return true
			}
		}
		return false
	}
	found["ListGroups"] = listed()
	removed := got(client.OffsetDelete(now, &kafka.OffsetDeleteRequest{
		GroupID: s.Group, Topics: map[string][]int{s.Topic: {1}},
	}))
	must(removed.Error)
	must(removed.Topics[s.Topic][0].Error)
	found["OffsetDelete"] = []int64{
		committed(client, s, 0)[0].CommittedOffset, committed(client, s, 1)[0].CommittedOffset,
	}
	none(got(client.DeleteGroups(now, &kafka.DeleteGroupsRequest{GroupIDs: []string{s.Group}})).Errors)
	found["DeleteGroups"] = listed()
	none(got(client.DeleteTopics(now, &kafka.DeleteTopicsRequest{Topics: []string{s.Topic}})).Errors)
}

func admin(s settings) {
	client := &kafka.Client{Addr: kafka.TCP(s.Servers...)}
	found := map[string]any{}
	topics(s, client, found)
	offsets(s, client, found)
	groups(s, client, found)
	say(found)
}

func main() {
	commands := map[string]func(settings){
		"produce": produce, "read": read, "group": group, "admin": admin,
	}
	var s settings
	must(json.Unmarshal([]byte(os.Args[2]), &s))
	commands[os.Args[1]](s)
}
