//! The order in which a host calls.

use std::time::Duration;

use bigquery_sink_state::{
    Code, Command, Core, DefaultStreamCore, DefaultStreams, Epoch, Incarnation, Input, Protocol, Replay,
    RowCount, RowErrorPolicy, StreamName,
};

use super::*;

#[test]
fn calls_out_of_order_are_the_hosts_mistake() {
    let told = |inputs: Vec<Input>| {
        let mut bench = Bench::new();
        let commands = inputs.into_iter().map(|input| bench.tell(input)).last();
        commands.and_then(|commands| failure(&commands)).unwrap().message
    };
    let barrier = |epoch| Input::Barrier { epoch: Epoch(epoch) };
    assert_eq!(
        told(vec![batch(1), barrier(1), batch(2)]),
        "rows came behind a barrier that is not reported yet, or after the end of data"
    );
    assert_eq!(
        told(vec![barrier(2), barrier(2)]),
        "barrier 2 came out of order, after Some(Epoch(2))"
    );
    assert_eq!(
        told(vec![commit(1, &[])]),
        "commit 1 belongs to no checkpoint this subtask prepared or restored"
    );
    assert_eq!(
        told(vec![barrier(1), barrier(2), commit(2, &[])]),
        "commit 2 came before the commit of checkpoint 1"
    );
    assert_eq!(
        told(vec![barrier(1), commit(1, &[(0, list(&[info("s1", 0, 0)]))])]),
        "commit 1 names rows of subtask 0 that are to be flushed, where rows go to the default stream"
    );
    assert_eq!(
        told((1..=9).map(barrier).collect()),
        "barrier 9 came while 8 older checkpoints wait for their commit"
    );
    assert_eq!(
        told(vec![batch(1), barrier(1), Input::EndOfData]),
        "end of data came inside a checkpoint"
    );
    assert_eq!(
        told(vec![batch(1), Input::EndOfData, batch(2)]),
        "rows came behind a barrier that is not reported yet, or after the end of data"
    );
    assert_eq!(
        told(vec![batch(1), Input::EndOfData, barrier(1)]),
        "barrier 1 came after the end of data"
    );
    let states = vec![at_least_once(5, 0, 1, Incarnation(7), START)];
    assert_eq!(
        told(vec![batch(1), restored(states, Replay::Unknown)]),
        "state was restored after the start"
    );
    assert_eq!(
        told(vec![crate::bench::created("s1")]),
        "a stream was created or flushed, which nothing asks for where rows go to the default stream"
    );
}

#[test]
fn the_end_of_data_waits_for_acknowledgements_and_nothing_else() {
    let mut bench = Bench::new();
    bench.tell(batch(1));
    assert_eq!(bench.tell(Input::EndOfData), []);
    assert_eq!(bench.tell(acked(1, 1)), [release(1), Command::Closed]);
    assert_eq!(Bench::new().tell(Input::EndOfData), [Command::Closed]);
}

#[test]
fn a_host_may_repeat_its_latest_commit_and_none_before_it() {
    let mut bench = Bench::new();
    let committed = |epoch| Command::Committed {
        epoch: Epoch(epoch),
        rows: RowCount(0),
    };
    for epoch in 1..=2 {
        bench.tell(Input::Barrier { epoch: Epoch(epoch) });
        assert_eq!(bench.tell(commit(epoch, &[])), [committed(epoch)]);
        assert_eq!(bench.tell(commit(epoch, &[])), [committed(epoch)]);
    }
    assert_eq!(
        bench.tell(commit(1, &[])),
        [host_failure(
            "commit 1 belongs to no checkpoint this subtask prepared or restored"
        )]
    );
}

#[test]
fn dead_letters_that_are_owed_are_wanted_at_a_barrier_or_the_end_and_not_before() {
    for end in [Input::Barrier { epoch: Epoch(1) }, Input::EndOfData] {
        let mut bench = Bench::with(|config| config.row_errors = RowErrorPolicy::DeadLetter);
        bench.tell(Input::RowsRefused { rows: RowCount(1) });
        assert!(!bench.core.wants_dead_letters());
        assert_eq!(bench.tell(end), []);
        assert!(bench.core.wants_dead_letters());
    }
}

#[test]
fn nothing_connects_without_rows_or_before_the_pause_is_over() {
    let mut bench = Bench::new();
    assert_eq!(bench.tell(Input::Tick), []);
    bench.tell(batch(1));
    bench.tell(lost(1, Code::Unavailable));
    assert_eq!(bench.tell(batch(2)), []);
    assert_eq!(bench.wake(), [connect(2, TABLE), append(2, 2, 1)]);
}

#[test]
fn a_driver_sees_of_either_protocol_what_its_core_says() {
    let mut config = config();
    config.row_errors = RowErrorPolicy::DeadLetter;
    config.limits.inflight_requests = 1;
    let streams = DefaultStreams {
        table: StreamName(TABLE.into()),
        dead_letters: Some(StreamName(DEAD_LETTERS.into())),
    };
    let exactly_once = Protocol::ExactlyOnce(Box::new(Core::new(config.clone())));
    let at_least_once = Protocol::AtLeastOnce(Box::new(DefaultStreamCore::new(config, streams)));
    for (mut protocol, first) in [
        (exactly_once, crate::bench::create(0)),
        (at_least_once, connect(1, TABLE)),
    ] {
        assert!(protocol.has_room() && !protocol.wants_dead_letters());
        assert_eq!((protocol.next_wake(), protocol.poll()), (None, None));
        protocol.handle(START, batch(1));
        assert!(!protocol.has_room());
        assert_eq!(protocol.poll(), Some(first));
        if matches!(protocol, Protocol::ExactlyOnce(_)) {
            protocol.handle(START, crate::bench::created("s1"));
        }
        let silence = START.after(Duration::from_secs(150));
        assert_eq!(protocol.next_wake(), Some(silence));
        protocol.handle(START, Input::RowsRefused { rows: RowCount(1) });
        protocol.handle(START, Input::Barrier { epoch: Epoch(1) });
        assert!(protocol.wants_dead_letters());
    }
}
