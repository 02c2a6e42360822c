//! The default stream: no offsets, no flush, every answer by itself; what a restore across modes needs.

use std::collections::BTreeMap;
use std::time::Duration;

use bigquery_sink_state::{
    BatchId, BigQuerySinkState, Code, Command, CommitList, Core, CoreConfig, DefaultStreamCore,
    DefaultStreams, Destination, Epoch, Failure, FailureKind, Fault, Generation, Incarnation, Input, Micros,
    NextOffset, Notice, Place, Protocol, Replay, RequestNumber, RestoreError, RestoredUnion, RowCount,
    RowErrorPolicy, RowFault, StorageCode, StreamName, StreamState, SubtaskIndex, SubtaskState,
};

use crate::bench::{
    START, acts, batch, commit, config, failure, fault, info, list, lost, notices, refused, state,
};

const TABLE: &str = "t/streams/_default";
const DEAD_LETTERS: &str = "dead/streams/_default";

/// A core on default streams.
struct Bench {
    core: DefaultStreamCore,
    now: Micros,
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut CoreConfig)) -> Self {
        let mut config = config();
        change(&mut config);
        let dead_letters = config.row_errors == RowErrorPolicy::DeadLetter;
        let streams = DefaultStreams {
            table: StreamName(TABLE.into()),
            dead_letters: dead_letters.then(|| StreamName(DEAD_LETTERS.into())),
        };
        Self {
            core: DefaultStreamCore::new(config, streams),
            now: START,
        }
    }

    /// Requests 1 to 4 of a row each; the first is acknowledged, the others are under way on connection 1.
    fn flowing() -> Self {
        Self::flowing_with(|_| {})
    }

    fn flowing_with(change: impl FnOnce(&mut CoreConfig)) -> Self {
        let mut bench = Self::with(change);
        for id in 1..=4 {
            bench.tell(batch(id));
        }
        assert_eq!(
            bench.tell(acked(1, 1)),
            [release(1), append(1, 2, 2), append(1, 3, 3), append(1, 4, 4)]
        );
        bench
    }

    fn tell(&mut self, input: Input) -> Vec<Command> {
        self.core.handle(self.now, input);
        std::iter::from_fn(|| self.core.poll()).collect()
    }

    /// Moves on to when the core wants to be woken.
    fn wake(&mut self) -> Vec<Command> {
        let at = self.core.next_wake().expect("something is waited for");
        self.now = self.now.max(at);
        self.tell(Input::Tick)
    }

    /// Answers every request with the fault until the subtask fails, which must be within a day.
    fn exhaust(&mut self, fault: &Fault) -> (Failure, Duration) {
        let mut commands = self.tell(batch(1));
        for _ in 0..10_000 {
            if let Some(failure) = failure(&commands) {
                return (failure, self.now.since(START));
            }
            let sent = commands.iter().find_map(|command| match command {
                Command::Append {
                    connection, request, ..
                } => Some((connection.0, request.0)),
                _ => None,
            });
            commands = match sent {
                Some((connection, request)) => self.tell(refused(connection, request, fault.clone())),
                None => self.wake(),
            };
        }
        panic!("no end after {:?} (invariant 13)", self.now.since(START));
    }
}

fn acked(connection: u64, request: u64) -> Input {
    Input::AppendAcked {
        connection: Generation(connection),
        request: RequestNumber(request),
        offset: None,
    }
}

fn append(connection: u64, request: u64, batch: u64) -> Command {
    Command::Append {
        connection: Generation(connection),
        request: RequestNumber(request),
        offset: None,
        batch: BatchId(batch),
    }
}

fn connect(connection: u64, stream: &str) -> Command {
    Command::Connect {
        connection: Generation(connection),
        stream: StreamName(stream.into()),
    }
}

fn disconnect(connection: u64) -> Command {
    Command::Disconnect {
        connection: Generation(connection),
    }
}

fn release(batch: u64) -> Command {
    Command::Release {
        batch: BatchId(batch),
    }
}

fn prepared(epoch: u64, rows: u64, now: Micros) -> Command {
    Command::Prepared {
        epoch: Epoch(epoch),
        state: at_least_once(epoch, 0, 1, Incarnation(START.0), now),
        commit: CommitList::default(),
        rows: RowCount(rows),
    }
}

/// A state as this mode writes it.
fn at_least_once(
    epoch: u64,
    subtask: u32,
    parallelism: u32,
    incarnation: Incarnation,
    now: Micros,
) -> SubtaskState {
    let stream = BigQuerySinkState {
        stream: StreamName(TABLE.into()),
        next_offset: NextOffset(0),
        checkpoint_id: Epoch(epoch),
    };
    SubtaskState {
        incarnation,
        streams: vec![StreamState {
            state: stream,
            last_append_micros: now.0,
        }],
        ..state(epoch, subtask, parallelism, list(&[]))
    }
}

fn restored(states: Vec<SubtaskState>, replay: Replay) -> Input {
    let epoch = states[0].checkpoint_id;
    let states: BTreeMap<_, _> = states.into_iter().map(|state| (state.subtask, state)).collect();
    Input::Restored {
        union: RestoredUnion::new("t", epoch, states).unwrap(),
        replay,
    }
}

fn bad_rows(indexes: &[u64]) -> Fault {
    let row = |&index: &u64| RowFault {
        index,
        message: format!("bad {index}"),
    };
    Fault {
        row_errors: indexes.iter().map(row).collect(),
        ..fault(Code::InvalidArgument, Place::InBand)
    }
}

fn host_failure(message: &str) -> Command {
    Command::Fail(Failure {
        kind: FailureKind::Host,
        message: message.into(),
    })
}

#[test]
fn rows_go_to_the_default_stream_without_offsets_the_first_request_alone() {
    let mut bench = Bench::new();
    assert_eq!(bench.tell(batch(1)), [connect(1, TABLE), append(1, 1, 1)]);
    assert_eq!(bench.tell(batch(2)), []);
    assert_eq!(bench.tell(batch(3)), []);
    assert_eq!(
        bench.tell(acked(1, 1)),
        [release(1), append(1, 2, 2), append(1, 3, 3)]
    );
    assert_eq!(bench.tell(batch(4)), [append(1, 4, 4)]);
}

#[test]
fn a_barrier_waits_for_every_acknowledgement_and_its_commit_costs_no_call() {
    let mut bench = Bench::new();
    bench.tell(batch(1));
    bench.tell(batch(2));
    assert_eq!(bench.tell(Input::Barrier { epoch: Epoch(1) }), []);
    assert_eq!(bench.tell(acked(1, 1)), [release(1), append(1, 2, 2)]);
    let now = bench.now;
    assert_eq!(bench.tell(acked(1, 2)), [release(2), prepared(1, 2, now)]);
    let committed = |rows| Command::Committed {
        epoch: Epoch(1),
        rows: RowCount(rows),
    };
    assert_eq!(bench.tell(commit(1, &[(0, list(&[]))])), [committed(2)]);
    // Invariant 10: said again, it changes nothing.
    assert_eq!(bench.tell(commit(1, &[(0, list(&[]))])), [committed(2)]);
    assert_eq!(
        bench.tell(Input::Barrier { epoch: Epoch(2) }),
        [prepared(2, 0, now)],
        "rows are counted for one checkpoint"
    );
}

#[test]
fn a_lost_connection_has_everything_unanswered_sent_again_in_order() {
    let mut bench = Bench::flowing();
    assert_eq!(acts(bench.tell(lost(1, Code::Unavailable))), []);
    assert_eq!(acts(bench.wake()), [connect(2, TABLE), append(2, 5, 2)]);
    assert_eq!(
        bench.tell(acked(2, 5)),
        [release(2), append(2, 6, 3), append(2, 7, 4)]
    );
    assert_eq!(
        bench.tell(acked(1, 3)),
        [Command::Notice(Notice::StaleAnswerDropped)],
        "an answer of the older connection (invariant 8)"
    );
}

#[test]
fn an_idle_connection_that_ends_is_opened_again_by_the_next_rows_only() {
    let mut bench = Bench::new();
    bench.tell(batch(1));
    bench.tell(acked(1, 1));
    let end = fault(Code::Ok, Place::RpcEnd);
    assert_eq!(
        bench.tell(lost(1, Code::Ok)),
        [Command::Notice(Notice::Reconnect { fault: end })]
    );
    assert_eq!(bench.core.next_wake(), None);
    assert_eq!(bench.tell(batch(2)), [connect(2, TABLE), append(2, 2, 2)]);
}

#[test]
fn a_request_that_fails_goes_out_again_alone_while_those_behind_it_are_stored() {
    let mut bench = Bench::flowing();
    let passing = fault(Code::Internal, Place::InBand);
    let refusal = bench.tell(refused(1, 2, passing.clone()));
    assert!(
        matches!(notices(&refusal).as_slice(), [Notice::Retry { fault, .. }] if *fault == passing),
        "{refusal:?}"
    );
    assert_eq!(acts(refusal), []);
    assert_eq!(
        bench.tell(acked(1, 3)),
        [release(3)],
        "it is stored, whatever came before it"
    );
    assert_eq!(bench.tell(refused(1, 4, passing)), [], "one pause for both");
    assert_eq!(acts(bench.wake()), [append(1, 5, 2)]);
    assert_eq!(bench.tell(acked(1, 5)), [release(2), append(1, 6, 4)]);
    assert_eq!(bench.tell(acked(1, 6)), [release(4)]);
}

#[test]
fn a_second_passing_fault_in_a_row_is_met_on_a_new_connection() {
    let mut bench = Bench::new();
    bench.tell(batch(1));
    bench.tell(refused(1, 1, fault(Code::Internal, Place::InBand)));
    assert_eq!(acts(bench.wake()), [append(1, 2, 1)]);
    assert_eq!(
        acts(bench.tell(refused(1, 2, fault(Code::Internal, Place::InBand)))),
        [disconnect(1)]
    );
    assert_eq!(acts(bench.wake()), [connect(2, TABLE), append(2, 3, 1)]);
}

#[test]
fn an_answer_that_does_not_come_is_a_lost_connection() {
    let mut bench = Bench::flowing();
    assert_eq!(
        bench.core.next_wake().map(|at| at.since(START)),
        Some(Duration::from_secs(150))
    );
    assert_eq!(acts(bench.wake()), [disconnect(1)]);
    assert_eq!(acts(bench.wake()), [connect(2, TABLE), append(2, 5, 2)]);
}

#[test]
fn a_token_that_is_not_taken_is_replaced_once() {
    let mut bench = Bench::new();
    bench.tell(batch(1));
    let refusal = fault(Code::Unauthenticated, Place::RpcEnd);
    let lost = || Input::ConnectionLost {
        connection: Generation(1),
        fault: refusal.clone(),
    };
    assert_eq!(acts(bench.tell(lost())), [Command::RefreshCredentials]);
    assert_eq!(acts(bench.wake()), [connect(2, TABLE), append(2, 2, 1)]);
    let again = Input::ConnectionLost {
        connection: Generation(2),
        fault: refusal.clone(),
    };
    assert_eq!(
        failure(&bench.tell(again)),
        Some(Failure {
            kind: FailureKind::User,
            message: "appending failed: Unauthenticated: text (the token is not taken)".into()
        })
    );
}

#[test]
fn an_offset_error_is_a_clear_failure() {
    for (code, storage_code) in [
        (Code::AlreadyExists, StorageCode::OffsetAlreadyExists),
        (Code::OutOfRange, StorageCode::OffsetOutOfRange),
    ] {
        let mut bench = Bench::flowing();
        let refusal = Fault {
            storage_code: Some(storage_code),
            ..fault(code, Place::InBand)
        };
        let message = format!(
            "appending failed: {code:?}/{storage_code:?}: text (a request without an offset can meet no other rows, and BigQuery has said \
             that it does); the job restarts from its checkpoint"
        );
        assert_eq!(
            failure(&bench.tell(refused(1, 2, refusal))),
            Some(Failure {
                kind: FailureKind::Restart,
                message
            })
        );
        assert_eq!(bench.core.next_wake(), None);
    }
}

#[test]
fn every_fault_that_stays_ends_within_its_budget() {
    // Invariant 13.
    use FailureKind::{Restart, User};
    for (code, kind, budget, reason) in [
        (
            Code::Unavailable,
            Restart,
            300,
            "a passing fault of the server or the network",
        ),
        (Code::ResourceExhausted, Restart, 900, "a quota is used up"),
        (
            Code::NotFound,
            User,
            60,
            "the table is not there, or was made just now (write-api.md 3.4)",
        ),
        (Code::InvalidArgument, User, 0, "the request is wrong"),
    ] {
        let (failure, took) = Bench::new().exhaust(&fault(code, Place::InBand));
        let next = if kind == Restart {
            "; the job restarts from its checkpoint"
        } else {
            ""
        };
        let message = format!("appending failed: {code:?}: text ({reason}){next}");
        assert_eq!(failure, Failure { kind, message });
        let budget = Duration::from_secs(budget);
        assert!(took <= budget && took >= budget / 2, "{code:?}: {took:?}");
    }
}

#[test]
fn an_answer_out_of_order_ends_the_attempt() {
    let mut bench = Bench::flowing();
    assert_eq!(
        failure(&bench.tell(acked(1, 3))),
        Some(Failure {
            kind: FailureKind::Restart,
            message: "an answer on t/streams/_default is not the one that is due; BigQuery answers in order. The job restarts from its \
                      checkpoint"
                .into()
        })
    );
}

#[test]
fn the_window_is_bounded_in_requests_and_bytes() {
    let mut bench = Bench::with(|config| config.limits.inflight_requests = 2);
    bench.tell(batch(1));
    assert!(bench.core.has_room());
    bench.tell(batch(2));
    assert!(!bench.core.has_room(), "two requests");
    bench.tell(acked(1, 1));
    assert!(bench.core.has_room());

    let mut bench = Bench::new();
    for id in 1..=39 {
        bench.tell(batch(id));
    }
    assert!(bench.core.has_room());
    bench.tell(batch(40));
    assert_eq!(bench.core.inflight_bytes(), 4_000);
    assert!(
        !bench.core.has_room(),
        "four requests' worth, before a rate is measured"
    );
}

#[test]
fn several_connections_share_the_rows() {
    let mut bench = Bench::with(|config| config.streams = 2);
    assert_eq!(bench.tell(batch(1)), [connect(1, TABLE), append(1, 1, 1)]);
    assert_eq!(bench.tell(batch(2)), [connect(2, TABLE), append(2, 2, 2)]);
    bench.tell(Input::Barrier { epoch: Epoch(1) });
    let now = bench.now;
    assert_eq!(bench.tell(acked(2, 2)), [release(2)]);
    assert_eq!(bench.tell(acked(1, 1)), [release(1), prepared(1, 2, now)]);
}

#[test]
fn what_is_paused_is_waited_for_only_when_every_answer_is_in() {
    let mut bench = Bench::flowing();
    bench.tell(refused(1, 2, fault(Code::Internal, Place::InBand)));
    // The answer to request 3 is due until half of append.timeout is over.
    assert_eq!(
        bench.core.next_wake(),
        Some(START.after(Duration::from_secs(150)))
    );
    bench.tell(acked(1, 3));
    bench.tell(acked(1, 4));
    let pause = bench.core.next_wake().map(|wake| wake.since(START));
    assert!(
        pause.is_some_and(|pause| pause <= Duration::from_millis(100)),
        "{pause:?}"
    );
}

#[test]
fn a_connection_that_answers_is_not_given_up() {
    let mut bench = Bench::flowing();
    // Answers come every 100 s; only 150 s of silence are too long.
    for request in 2..=4 {
        bench.now = bench.now.after(Duration::from_secs(100));
        assert_eq!(bench.tell(Input::Tick), []);
        assert_eq!(bench.tell(acked(1, request)), [release(request)]);
    }
}

#[test]
fn a_pause_for_a_quota_outlasts_the_connection() {
    let mut bench = Bench::new();
    bench.tell(batch(1));
    for request in 1..8 {
        bench.tell(refused(1, request, fault(Code::ResourceExhausted, Place::InBand)));
        assert_eq!(acts(bench.wake()), [append(1, request + 1, 1)]);
    }
    bench.tell(refused(1, 8, fault(Code::ResourceExhausted, Place::InBand)));
    let due = bench.core.next_wake();
    bench.tell(lost(1, Code::Aborted));
    assert_eq!(bench.core.next_wake(), due);
}

#[test]
fn bad_rows_that_may_be_of_any_request_fail_a_job_without_dead_letters_at_once() {
    let mut bench = Bench::flowing();
    let end = Input::ConnectionLost {
        connection: Generation(1),
        fault: Fault {
            place: Place::RpcEnd,
            ..bad_rows(&[0])
        },
    };
    assert_eq!(
        failure(&bench.tell(end)),
        Some(Failure {
            kind: FailureKind::User,
            message: "appending failed: InvalidArgument: text; row 0: bad 0 (rows of the request are bad (write-api.md 3.5))".into()
        })
    );
}

#[test]
fn an_answer_of_an_older_connection_is_dropped() {
    let mut bench = Bench::flowing();
    bench.tell(lost(1, Code::Unavailable));
    bench.wake();
    assert_eq!(
        bench.tell(acked(1, 2)),
        [Command::Notice(Notice::StaleAnswerDropped)]
    );
}

#[test]
fn nothing_more_is_done_after_a_failure_or_the_end() {
    let mut bench = Bench::flowing();
    bench.tell(acked(1, 3));
    assert_eq!(bench.core.next_wake(), None);
    assert_eq!(bench.tell(batch(5)), []);
}

// Rows that BigQuery refuses.

#[test]
fn refused_rows_end_the_job_where_that_is_the_policy() {
    let mut bench = Bench::flowing();
    assert_eq!(
        failure(&bench.tell(refused(1, 2, bad_rows(&[0])))),
        Some(Failure {
            kind: FailureKind::User,
            message: "appending failed: InvalidArgument: text; row 0: bad 0 (rows of the request are bad (write-api.md 3.5))".into()
        })
    );
}

#[test]
fn refused_rows_leave_their_request_and_are_owed_as_dead_letters() {
    let mut bench = Bench::flowing_with(|config| config.row_errors = RowErrorPolicy::DeadLetter);
    let three = Input::Batch {
        destination: Destination::Table,
        id: BatchId(5),
        rows: RowCount(3),
        bytes: 300,
    };
    assert_eq!(bench.tell(three), [append(1, 5, 5)]);
    for request in 2..=4 {
        bench.tell(acked(1, request));
    }
    let rejected = Notice::RowsRejected {
        stream: StreamName(TABLE.into()),
        rows: RowCount(2),
    };
    assert_eq!(
        bench.tell(refused(1, 5, bad_rows(&[2, 7, 0]))),
        [
            Command::Notice(rejected),
            Command::RemoveRows {
                batch: BatchId(5),
                rows: bad_rows(&[0, 2]).row_errors
            }
        ]
    );
    assert_eq!(
        bench.tell(batch(6)),
        [append(1, 6, 6)],
        "nothing waits for the driver"
    );
    let removed = |rows, dead_letters| Input::RowsRemoved {
        batch: BatchId(5),
        rows: RowCount(rows),
        bytes: 100,
        dead_letters: RowCount(dead_letters),
    };
    assert_eq!(bench.tell(removed(1, 2)), [append(1, 7, 5)]);
    bench.tell(acked(1, 6));
    bench.tell(Input::Barrier { epoch: Epoch(1) });
    assert!(bench.core.wants_dead_letters());
    assert_eq!(bench.tell(acked(1, 7)), [release(5)], "two dead letters are owed");
    let letters = Input::Batch {
        destination: Destination::DeadLetters,
        id: BatchId(7),
        rows: RowCount(2),
        bytes: 300,
    };
    assert_eq!(bench.tell(letters), [connect(2, DEAD_LETTERS), append(2, 8, 7)]);
    assert!(!bench.core.wants_dead_letters());
    let now = bench.now;
    assert_eq!(bench.tell(acked(2, 8)), [release(7), prepared(1, 8, now)]);
}

#[test]
fn a_request_without_good_rows_is_never_sent_again() {
    let mut bench = Bench::with(|config| config.row_errors = RowErrorPolicy::DeadLetter);
    bench.tell(batch(1));
    bench.tell(refused(1, 1, bad_rows(&[0])));
    let removed = |batch, rows, dead_letters| Input::RowsRemoved {
        batch: BatchId(batch),
        rows: RowCount(rows),
        bytes: 0,
        dead_letters: RowCount(dead_letters),
    };
    assert_eq!(bench.tell(removed(1, 0, 1)), [release(1)]);
    assert_eq!(bench.core.inflight_bytes(), 0);
    assert_eq!(
        bench.tell(removed(1, 0, 1)),
        [host_failure(
            "rows were taken out of request 1, which was not asked for"
        )]
    );
}

#[test]
fn a_refusal_that_names_no_row_of_the_request_or_a_dead_letter_ends_the_job() {
    let mut bench = Bench::with(|config| config.row_errors = RowErrorPolicy::DeadLetter);
    bench.tell(batch(1));
    assert_eq!(
        failure(&bench.tell(refused(1, 1, bad_rows(&[1])))),
        Some(Failure {
            kind: FailureKind::User,
            message: "appending failed: InvalidArgument: text; row 1: bad 1; the refused request to t/streams/_default holds rows 0 to 0, \
                      so that nothing tells which to leave out"
                .into()
        })
    );
    let mut bench = Bench::with(|config| config.row_errors = RowErrorPolicy::DeadLetter);
    bench.tell(Input::RowsRefused { rows: RowCount(1) });
    bench.tell(Input::Batch {
        destination: Destination::DeadLetters,
        id: BatchId(1),
        rows: RowCount(1),
        bytes: 100,
    });
    assert_eq!(
        failure(&bench.tell(refused(1, 1, bad_rows(&[0])))).map(|failure| failure.message),
        Some(
            "appending dead letters failed: InvalidArgument: text; row 0: bad 0; a dead letter that is refused itself can go nowhere. Change \
             the dead-letter table so that it takes what the sink writes there, or name another one, and start again"
                .into()
        )
    );
}

#[test]
fn row_errors_at_the_end_of_a_call_count_where_one_request_was_under_way() {
    let end = |connection| Input::ConnectionLost {
        connection: Generation(connection),
        fault: Fault {
            place: Place::RpcEnd,
            ..bad_rows(&[0])
        },
    };
    let mut bench = Bench::flowing_with(|config| config.row_errors = RowErrorPolicy::DeadLetter);
    assert_eq!(acts(bench.tell(end(1))), [], "three were under way");
    assert_eq!(acts(bench.wake()), [connect(2, TABLE), append(2, 5, 2)]);
    assert_eq!(
        acts(bench.tell(end(2))),
        [
            Command::RemoveRows {
                batch: BatchId(2),
                rows: bad_rows(&[0]).row_errors
            },
            connect(3, TABLE),
            append(3, 6, 3)
        ]
    );
}

// The host's order.

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

// Restores.

#[test]
fn a_restore_goes_on_with_a_larger_incarnation_and_confirms_the_replay() {
    let mut bench = Bench::new();
    let far = Incarnation(START.0 + 70);
    let states = vec![
        at_least_once(5, 0, 2, Incarnation(7), START),
        at_least_once(5, 1, 2, far, START),
    ];
    assert_eq!(bench.tell(restored(states, Replay::Expected)), []);
    assert_eq!(bench.core.incarnation(), Incarnation(START.0 + 71));
    let replay = commit(5, &[(0, list(&[])), (1, list(&[]))]);
    let committed = Command::Committed {
        epoch: Epoch(5),
        rows: RowCount(0),
    };
    assert_eq!(bench.tell(replay), [committed]);
    bench.tell(Input::Barrier { epoch: Epoch(6) });
    let committed = Command::Committed {
        epoch: Epoch(6),
        rows: RowCount(0),
    };
    assert_eq!(bench.tell(commit(6, &[])), [committed]);
    assert_eq!(
        bench.tell(Input::Barrier { epoch: Epoch(5) }),
        [host_failure("barrier 5 came out of order, after Some(Epoch(6))")]
    );
}

#[test]
fn an_own_commit_comes_after_the_replayed_one() {
    let mut bench = Bench::new();
    let states = vec![at_least_once(5, 0, 1, Incarnation(7), START)];
    bench.tell(restored(states, Replay::Expected));
    bench.tell(Input::Barrier { epoch: Epoch(6) });
    assert_eq!(
        bench.tell(commit(6, &[(0, list(&[]))])),
        [host_failure(
            "commit 6 came before the replayed commit of checkpoint 5"
        )]
    );
}

#[test]
fn a_replayed_commit_is_that_of_the_restored_state() {
    let mut bench = Bench::new();
    let states = vec![at_least_once(5, 0, 1, Incarnation(7), START)];
    bench.tell(restored(states, Replay::Unknown));
    assert_eq!(
        bench.tell(commit(5, &[(0, list(&[info("s1", 0, 0)]))])),
        [host_failure(
            "the replayed commit 5 differs from the restored state's copy; another incarnation wrote one of them"
        )]
    );
}

#[test]
fn the_mode_changes_only_where_every_commit_is_confirmed() {
    let message = |old: &str, new: &str| {
        format!(
            "checkpoint 5 was taken with write.mode = '{old}', and its commit is not known to be confirmed; the mode can change only where \
             every commit is. Start with '{old}' again, stop with a checkpoint, and change to '{new}' then; where the host cannot tell what \
             was confirmed, start the new mode as a new pipeline"
        )
    };
    let exactly_once = || vec![state(5, 0, 1, list(&[info("s1", 0, 3)]))];
    let at_least_once = || vec![at_least_once(5, 0, 1, Incarnation(7), START)];
    for replay in [Replay::Expected, Replay::Unknown] {
        let refused = Failure {
            kind: FailureKind::User,
            message: message("exactly_once", "at_least_once"),
        };
        assert_eq!(
            Bench::new().tell(restored(exactly_once(), replay)),
            [Command::Fail(refused)]
        );
        let refused = Failure {
            kind: FailureKind::User,
            message: message("at_least_once", "exactly_once"),
        };
        let mut core = Core::new(config());
        core.handle(START, restored(at_least_once(), replay));
        assert_eq!(core.poll(), Some(Command::Fail(refused)));
    }
    let mut bench = Bench::new();
    assert_eq!(bench.tell(restored(exactly_once(), Replay::Confirmed)), []);
    assert_eq!(bench.tell(batch(1)), [connect(1, TABLE), append(1, 1, 1)]);
    let mut core = Core::new(config());
    core.handle(START, restored(at_least_once(), Replay::Confirmed));
    assert_eq!(core.poll(), None);
}

#[test]
fn states_of_both_modes_are_no_checkpoint() {
    let states = BTreeMap::from([
        (SubtaskIndex(0), state(5, 0, 2, list(&[]))),
        (SubtaskIndex(1), at_least_once(5, 1, 2, Incarnation(7), START)),
    ]);
    assert_eq!(
        RestoredUnion::new("t", Epoch(5), states),
        Err(RestoreError::Incomplete(
            "subtask 0 wrote with write.mode = 'exactly_once', subtask 1 with 'at_least_once'".into()
        ))
    );
}

#[test]
fn a_state_is_written_in_the_form_that_every_build_reads() {
    let state = at_least_once(5, 0, 1, Incarnation(7), START);
    assert_eq!(SubtaskState::decode(&state.encode()), Ok(state));
}
