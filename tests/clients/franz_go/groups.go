package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const partitions = 4

// protocols are the ways to share: two of the classic protocol, and the broker's assignment (KIP-848) by name and by
// regular expression.
var protocols = map[string][]kgo.Opt{
	"range":       {kgo.Balancers(kgo.RangeBalancer())},
	"cooperative": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
	"server":      {kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()},
	"regex":       {kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer(), kgo.ConsumeRegex()},
}

func memberOptions(bootstrap, topic, protocol string) []kgo.Opt {
	subscription := topic
	if protocol == "regex" {
		subscription = "^" + topic + "$"
	}
	return append([]kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(topic), kgo.ConsumeTopics(subscription),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(100 * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond)}, protocols[protocol]...)
}

// member is a consumer in a group. It knows what it has, and commits what it has read before it gives something up.
type member struct {
	*kgo.Client
	mutex sync.Mutex
	owned map[int32]bool
}

func join(bootstrap, topic, protocol string) (*member, error) {
	m := &member{owned: map[int32]bool{}}
	change := func(owns bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(ctx context.Context, client *kgo.Client, given map[string][]int32) {
			if !owns {
				client.CommitMarkedOffsets(ctx) //nolint:errcheck // the count of records read will tell
			}
			m.mutex.Lock()
			defer m.mutex.Unlock()
			for _, partition := range given[topic] {
				if delete(m.owned, partition); owns {
					m.owned[partition] = true
				}
			}
		}
	}
	client, err := kgo.NewClient(append(
		memberOptions(bootstrap, topic, protocol), kgo.AutoCommitMarks(), kgo.OnPartitionsAssigned(change(true)),
		kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)))...)
	m.Client = client
	return m, err
}

func (m *member) owns() []int32 {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	found := []int32{}
	for partition := range m.owned {
		found = append(found, partition)
	}
	return found
}

// sharing is a topic, how often each of its records has been read, and those who read it.
type sharing struct {
	admin   session
	topic   string
	sent    int
	seen    map[string]int
	members []*member
}

func openSharing(ctx context.Context, bootstrap, topic string) (*sharing, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	admin := session{kadm.NewClient(client), client}
	_, err = admin.CreateTopic(ctx, partitions, 1, nil, topic)
	return &sharing{admin: admin, topic: topic, seen: map[string]int{}}, err
}

func (s *sharing) send(ctx context.Context, count int) error {
	batch := make([]*kgo.Record, count)
	for i := range batch {
		batch[i] = &kgo.Record{Topic: s.topic, Partition: int32(i % partitions), Value: []byte(value(s.sent + i))}
	}
	s.sent += count
	return s.admin.records.ProduceSync(ctx, batch...).FirstErr()
}

// until has everybody poll in turn until something is so.
func (s *sharing) until(ctx context.Context, what string, reached func() bool) error {
	for !reached() {
		for _, m := range s.members {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			fetches := m.PollFetches(short)
			cancel()
			fetches.EachRecord(func(r *kgo.Record) { s.seen[string(r.Value)]++; m.MarkCommitRecords(r) })
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
	}
	return nil
}

func (s *sharing) readAll(ctx context.Context) error {
	if err := s.send(ctx, 40); err != nil {
		return err
	}
	return s.until(ctx, "read all", func() bool { return len(s.seen) == s.sent })
}

// share waits until everybody has the same number of partitions, and all of them together have each one once.
func (s *sharing) share(ctx context.Context) error {
	return s.until(ctx, "share", func() bool {
		all := map[int32]bool{}
		for _, m := range s.members {
			mine := m.owns()
			if len(mine) != partitions/len(s.members) {
				return false
			}
			for _, partition := range mine {
				all[partition] = true
			}
		}
		return len(all) == partitions
	})
}

// shareInGroup has one member read a topic, then two, then one again, and compares what came with what was committed.
func shareInGroup(ctx context.Context, bootstrap, topic, protocol string) error {
	s, err := openSharing(ctx, bootstrap, topic)
	if err != nil {
		return err
	}
	defer s.admin.records.Close()
	for range 2 {
		m, err := join(bootstrap, topic, protocol)
		if err != nil {
			return err
		}
		defer m.Close()
		s.members = append(s.members, m)
		if err := errors.Join(s.share(ctx), s.readAll(ctx)); err != nil {
			return err
		}
	}
	s.members[0].Close()
	s.members = s.members[1:]
	if err := errors.Join(s.share(ctx), s.readAll(ctx)); err != nil {
		return err
	}
	wanted := "classic"
	if protocol == "server" || protocol == "regex" {
		wanted = "consumer"
	}
	listed, err := s.admin.ListGroupsByType(ctx, []string{wanted})
	if err = errors.Join(err, expect("state", listed[topic].State, "Stable"), s.members[0].LeaveGroupContext(ctx)); err != nil {
		return err
	}
	return errors.Join(s.isCommitted(ctx), s.isReadOnce())
}

func (s *sharing) isCommitted(ctx context.Context) error {
	committed, err := s.admin.FetchOffsets(ctx, s.topic)
	total := int64(0)
	committed.Each(func(o kadm.OffsetResponse) { total += o.At })
	return errors.Join(err, expect("committed", total, int64(s.sent)))
}

func (s *sharing) isReadOnce() error {
	for value, times := range s.seen {
		if times != 1 {
			return fmt.Errorf("%q was read %d times", value, times)
		}
	}
	return expect("records", len(s.seen), s.sent)
}

// copied reads what is committed of a topic until it has so many different records. Nothing may come twice.
func copied(ctx context.Context, bootstrap, topic string, count int) (map[string]int, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found := map[string]int{}
	for len(found) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d committed records: %w", len(found), count, err)
		}
		for _, r := range fetches.Records() {
			if found[string(r.Value)]++; found[string(r.Value)] > 1 || strings.HasPrefix(string(r.Value), "aborted") {
				return nil, fmt.Errorf("%q came, %d times", r.Value, found[string(r.Value)])
			}
		}
	}
	return found, nil
}
