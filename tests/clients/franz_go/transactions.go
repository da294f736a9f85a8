package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func transactor(bootstrap, id string) (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

func transaction(ctx context.Context, client *kgo.Client, topic, text string, how kgo.TransactionEndTry) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	for partition := range int32(2) {
		record := &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "%s %d", text, partition)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return client.EndTransaction(ctx, how)
}

// transact commits and aborts in turn, is described, and is fenced by a second producer of the same name.
func transact(ctx context.Context, bootstrap, topic string) error {
	s, err := openSharing(ctx, bootstrap, topic)
	if err != nil {
		return err
	}
	defer s.admin.records.Close()
	first, err := transactor(bootstrap, topic)
	if err != nil {
		return err
	}
	defer first.Close()
	for i := range 3 {
		err := errors.Join(
			transaction(ctx, first, topic, fmt.Sprintf("committed %d", i), kgo.TryCommit),
			transaction(ctx, first, topic, fmt.Sprintf("aborted %d", i), kgo.TryAbort))
		if err != nil {
			return err
		}
	}
	described, err := s.admin.DescribeTransactions(ctx, topic)
	if err = errors.Join(err, expect("state", described[topic].State, "CompleteAbort")); err != nil {
		return err
	}
	listed, err := s.admin.ListTransactions(ctx, nil, []string{"CompleteAbort"})
	if err = errors.Join(err, expect("producer", listed[topic].ProducerID, described[topic].ProducerID)); err != nil {
		return err
	}
	if err := first.BeginTransaction(); err != nil {
		return err
	}
	late := &kgo.Record{Topic: topic, Value: []byte("aborted, by another")}
	if err := first.ProduceSync(ctx, late).FirstErr(); err != nil {
		return err
	}
	second, err := transactor(bootstrap, topic)
	if err != nil {
		return err
	}
	defer second.Close()
	if err := transaction(ctx, second, topic, "of the second", kgo.TryCommit); err != nil {
		return err
	}
	err = first.EndTransaction(ctx, kgo.TryCommit)
	if !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
		return fmt.Errorf("the first one goes on: %v", err)
	}
	_, err = copied(ctx, bootstrap, topic, 8)
	return err
}

// exactlyOnce has two members of a group copy a topic in transactions, the second of which comes when the first has
// begun. Every third transaction is aborted, and done again.
func exactlyOnce(ctx context.Context, bootstrap, topic, protocol string) error {
	s, err := openSharing(ctx, bootstrap, topic)
	if err != nil {
		return err
	}
	defer s.admin.records.Close()
	target := topic + "-copy"
	if _, err := s.admin.CreateTopic(ctx, partitions, 1, nil, target); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	done, ended := make(chan string, 1000), make(chan error, 2)
	for number := range 2 { // the second one comes when the first has done something
		id := fmt.Sprintf("%s-%d", topic, number)
		go func() { ended <- copyAll(working, bootstrap, topic, target, protocol, id, done) }()
		if err := s.sendUntil(ctx, id, done, ended); err != nil {
			return err
		}
	}
	if _, err := copied(ctx, bootstrap, target, s.sent); err != nil {
		return err
	}
	stop()
	return errors.Join(<-ended, <-ended, s.isCommitted(ctx))
}

// sendUntil gives work until a copier has committed some of it.
func (s *sharing) sendUntil(ctx context.Context, id string, done <-chan string, ended <-chan error) error {
	for {
		if err := s.send(ctx, 40); err != nil {
			return err
		}
		select {
		case by := <-done:
			if by == id {
				return nil
			}
		case err := <-ended:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%s commits nothing: %w", id, ctx.Err())
		}
	}
}

// copyAll is one member, until it is told to stop.
func copyAll(ctx context.Context, bootstrap, topic, target, protocol, id string, done chan<- string) error {
	copier, err := kgo.NewGroupTransactSession(append(
		memberOptions(bootstrap, topic, protocol), kgo.TransactionalID(id),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets())...)
	if err != nil {
		return err
	}
	defer copier.Close()
	for number := 1; ; number++ {
		fetches := copier.PollRecords(ctx, 20)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("fetch of %s: %w", id, err)
		}
		if err := copier.Begin(); err != nil {
			return err
		}
		whole := context.WithoutCancel(ctx) // what has begun is not interrupted
		fetches.EachRecord(func(r *kgo.Record) {
			copier.Produce(whole, &kgo.Record{Topic: target, Value: r.Value}, func(*kgo.Record, error) {})
		})
		committed, err := copier.End(whole, number%3 != 0)
		if err != nil {
			return fmt.Errorf("transaction %d of %s: %w", number, id, err)
		}
		if committed {
			select {
			case done <- id:
			default: // nobody waits any more
			}
		}
	}
}
