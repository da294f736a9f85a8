// franz-go against a broker: `franzgo BOOTSTRAP TOPIC records CODEC`, `... group PROTOCOL`, `... transactions`,
// `... exactly-once PROTOCOL`, `... admin`.
// It says nothing and ends with 0 if everything was as it has to be; otherwise it says what was not.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const records = 1000

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	bootstrap, topic, arguments := os.Args[1], os.Args[2], os.Args[3:]
	var err error
	switch arguments[0] {
	case "records":
		err = produceAndFetch(ctx, bootstrap, topic, codecs[arguments[1]])
	case "group":
		err = shareInGroup(ctx, bootstrap, topic, arguments[1])
	case "transactions":
		err = transact(ctx, bootstrap, topic)
	case "exactly-once":
		err = exactlyOnce(ctx, bootstrap, topic, arguments[1])
	case "admin":
		err = administer(ctx, bootstrap, topic)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func key(i int) string   { return fmt.Sprintf("k%d", i) }
func value(i int) string { return fmt.Sprintf("value value value %d", i) }

// produceAndFetch sends to a partition, and reads it from an offset in the middle of a batch, without a group.
func produceAndFetch(ctx context.Context, bootstrap, topic string, codec kgo.CompressionCodec) error {
	producer, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.AllowAutoTopicCreation(), kgo.ProducerBatchCompression(codec),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return err
	}
	defer producer.Close()
	batch := make([]*kgo.Record, records)
	for i := range batch {
		headers := []kgo.RecordHeader{{Key: "h", Value: []byte{byte(i)}}}
		batch[i] = &kgo.Record{Topic: topic, Key: []byte(key(i)), Value: []byte(value(i)), Headers: headers}
	}
	for i, result := range producer.ProduceSync(ctx, batch...) {
		if result.Err != nil || result.Record.Offset != int64(i) {
			return fmt.Errorf("record %d: offset %d, error %v", i, result.Record.Offset, result.Err)
		}
	}
	const from = 7
	consumer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(
		map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(from)}}))
	if err != nil {
		return err
	}
	defer consumer.Close()
	for next := from; next < records; {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		for _, r := range fetches.Records() {
			headed := len(r.Headers) == 1 && r.Headers[0].Key == "h" && r.Headers[0].Value[0] == byte(next)
			if r.Offset != int64(next) || string(r.Key) != key(next) || string(r.Value) != value(next) || !headed {
				return fmt.Errorf("at offset %d came %d: %q, %q, %v", next, r.Offset, r.Key, r.Value, r.Headers)
			}
			next++
		}
	}
	return nil
}

// session administers, and can also produce.
type session struct {
	*kadm.Client
	records *kgo.Client
}

// administer goes through a topic's life with kadm. Steps are named, so that a failure says where it was.
func administer(ctx context.Context, bootstrap, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := session{kadm.NewClient(client), client}
	steps := []struct {
		name string
		run  func(context.Context, session, string) error
	}{
		{"cluster", cluster}, {"topics", topics}, {"configs", configs}, {"records", recordsDeleted},
		{"log dirs", logDirs}, {"acls", acls}, {"quotas", quotas}, {"reassignments", reassignments},
		{"end", deleted},
	}
	for _, step := range steps {
		if err := step.run(ctx, admin, topic); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func expect(what string, got, wanted any) error {
	if got != wanted {
		return fmt.Errorf("%s: %v instead of %v", what, got, wanted)
	}
	return nil
}

func cluster(ctx context.Context, admin session, _ string) error {
	found, err := admin.BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	versions, err := admin.ApiVersions(ctx)
	if err != nil {
		return err
	}
	controller := versions[found.Controller]
	guess := controller.VersionGuess()
	return errors.Join(
		expect("brokers", len(found.Brokers), 1), expect("controller", found.Controller, found.Brokers[0].NodeID),
		expect("a cluster id", found.Cluster != "", true), expect("a version", guess != "", true))
}

func topics(ctx context.Context, admin session, topic string) error {
	segment := "1048576"
	made, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"segment.bytes": &segment}, topic)
	if err != nil {
		return err
	}
	if _, again := admin.CreateTopic(ctx, 2, 1, nil, topic); !errors.Is(again, kerr.TopicAlreadyExists) {
		return fmt.Errorf("made twice: %v", again)
	}
	grown, err := admin.CreatePartitions(ctx, 1, topic)
	if err = errors.Join(err, grown.Error()); err != nil {
		return err
	}
	described, err := admin.ListTopics(ctx, topic)
	if err = errors.Join(err, described.Error()); err != nil {
		return err
	}
	return errors.Join(
		expect("partitions", len(described[topic].Partitions), 3), expect("topic id", described[topic].ID, made.ID))
}

func configs(ctx context.Context, admin session, topic string) error {
	set := func(op kadm.IncrementalOp, name, value string) error {
		done, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: op, Name: name, Value: &value}}, topic)
		if err != nil {
			return err
		}
		return done[0].Err
	}
	if err := set(kadm.SetConfig, "retention.ms", "60000"); err != nil {
		return err
	}
	if err := set(kadm.AppendConfig, "cleanup.policy", "compact"); err != nil {
		return err
	}
	if err := set(kadm.SetConfig, "no.such.option", "1"); !errors.Is(err, kerr.InvalidConfig) {
		return fmt.Errorf("an unknown option: %v", err)
	}
	found, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	values := map[string]string{}
	for _, config := range found[0].Configs {
		values[config.Key] = config.MaybeValue()
	}
	return errors.Join(
		expect("retention.ms", values["retention.ms"], "60000"), expect("segment.bytes", values["segment.bytes"], "1048576"),
		expect("cleanup.policy", values["cleanup.policy"], "delete,compact"),
		set(kadm.SubtractConfig, "cleanup.policy", "compact"))
}

func recordsDeleted(ctx context.Context, admin session, topic string) error {
	for range 10 {
		record := &kgo.Record{Topic: topic, Partition: 1, Value: []byte("x")}
		if err := admin.records.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	upTo := kadm.Offsets{}
	upTo.AddOffset(topic, 1, 4, -1)
	done, err := admin.DeleteRecords(ctx, upTo)
	if err = errors.Join(err, done.Error()); err != nil {
		return err
	}
	start, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return err
	}
	end, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	first, _ := start.Lookup(topic, 1)
	last, _ := end.Lookup(topic, 1)
	return errors.Join(expect("start", first.Offset, int64(4)), expect("end", last.Offset, int64(10)))
}

func logDirs(ctx context.Context, admin session, topic string) error {
	found, err := admin.DescribeAllLogDirs(ctx, kadm.TopicsSet{topic: {1: {}}})
	if err != nil {
		return err
	}
	size := int64(0)
	for _, folders := range found {
		if err := folders.Error(); err != nil {
			return err
		}
		size += folders.Size()
	}
	return expect("a size", size > 0, true)
}

func acls(ctx context.Context, admin session, topic string) error {
	rule := kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).
		Operations(kadm.OpRead).Allow("User:go").AllowHosts()
	if _, err := admin.CreateACLs(ctx, rule); err != nil {
		return err
	}
	found, err := admin.DescribeACLs(ctx, rule)
	if err != nil {
		return err
	}
	removed, err := admin.DeleteACLs(ctx, rule)
	if err != nil {
		return err
	}
	return errors.Join(
		expect("described", len(found[0].Described), 1), expect("removed", len(removed[0].Deleted), 1))
}

func quotas(ctx context.Context, admin session, _ string) error {
	id := "franz-go"
	entity := kadm.ClientQuotaEntity{{Type: "client-id", Name: &id}}
	alter := func(remove bool) error {
		op := kadm.AlterClientQuotaOp{Key: "producer_byte_rate", Value: 1024, Remove: remove}
		done, err := admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{
			{Entity: entity, Ops: []kadm.AlterClientQuotaOp{op}}})
		if err != nil {
			return err
		}
		return done[0].Err
	}
	if err := alter(false); err != nil {
		return err
	}
	wanted := kadm.DescribeClientQuotaComponent{Type: "client-id", MatchName: &id, MatchType: kmsg.QuotasMatchTypeExact}
	found, err := admin.DescribeClientQuotas(ctx, true, []kadm.DescribeClientQuotaComponent{wanted})
	if err != nil {
		return err
	}
	if len(found) != 1 || len(found[0].Values) != 1 || found[0].Values[0].Value != 1024 {
		return fmt.Errorf("described: %v", found)
	}
	return alter(true)
}

func reassignments(ctx context.Context, admin session, topic string) error {
	found, err := admin.ListPartitionReassignments(ctx, kadm.TopicsSet{topic: {0: {}}})
	if err != nil {
		return err
	}
	if err := expect("reassignments", len(found), 0); err != nil {
		return err
	}
	elected, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, kadm.TopicsSet{topic: {0: {}}})
	if err != nil {
		return err
	}
	if err := elected[topic][0].Err; !errors.Is(err, kerr.ElectionNotNeeded) {
		return fmt.Errorf("election: %v", err)
	}
	return nil
}

func deleted(ctx context.Context, admin session, topic string) error {
	done, err := admin.DeleteTopics(ctx, topic)
	if err = errors.Join(err, done.Error()); err != nil {
		return err
	}
	left, err := admin.ListTopics(ctx)
	if err != nil {
		return err
	}
	return expect("topic is still there", left.Has(topic), false)
}
