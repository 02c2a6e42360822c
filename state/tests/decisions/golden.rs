//! Bytes on disk: every released version is read by every later build.

use bigquery_sink_state::envelope::{EnvelopeError, Kind};
use bigquery_sink_state::{
    BigQuerySinkState, CommitList, Epoch, Incarnation, Micros, NextOffset, RestoredUnion, StreamName,
    StreamState, SubtaskIndex, SubtaskState,
};
use proptest::prelude::*;

use crate::bench::{info, list};

fn example() -> SubtaskState {
    let stream = "projects/p/datasets/d/tables/t/streams/CiQ2YjQ";
    SubtaskState {
        checkpoint_id: Epoch(42),
        subtask: SubtaskIndex(1),
        parallelism: 3,
        incarnation: Incarnation(1_796_000_000_000_000),
        table: "projects/p/datasets/d/tables/t".into(),
        streams: vec![StreamState {
            state: BigQuerySinkState {
                stream: StreamName(stream.into()),
                next_offset: NextOffset(70_000),
                checkpoint_id: Epoch(42),
            },
            last_append_micros: 1_796_000_001_000_000,
        }],
        commit: list(&[info(stream, 300, 69_999)]),
    }
}

#[test]
fn version_1_of_a_subtask_state_is_read() {
    let golden = include_bytes!("../golden/subtask_state_v1.bin");
    assert_eq!(SubtaskState::decode(golden), Ok(example()));
    assert_eq!(
        example().encode(),
        golden,
        "a change of the bytes needs a new version"
    );
}

#[test]
fn version_1_of_a_commit_list_is_read() {
    let golden = include_bytes!("../golden/commit_v1.bin");
    assert_eq!(CommitList::decode(golden), Ok(example().commit));
    assert_eq!(
        example().commit.encode(),
        golden,
        "a change of the bytes needs a new version"
    );
}

#[test]
fn a_state_stays_under_1_kib_and_300_bytes_a_stream() {
    let mut state = example();
    state.streams = vec![state.streams[0].clone(); 16];
    state.commit.0 = vec![state.commit.0[0].clone(); 16];
    assert!(state.encode().len() < 1024 + 16 * 300, "{}", state.encode().len());
}

#[test]
fn a_union_tells_when_rows_last_went_out() {
    // BigQuery keeps a stream for seven days after: a job that was stopped for longer is told so.
    let state = |subtask, appended: &[u64]| {
        let stream = |appended: &u64| StreamState {
            last_append_micros: *appended,
            ..example().streams[0].clone()
        };
        let state = SubtaskState {
            subtask: SubtaskIndex(subtask),
            parallelism: 2,
            streams: appended.iter().map(stream).collect(),
            ..example()
        };
        (SubtaskIndex(subtask), state)
    };
    let last = |states: [(SubtaskIndex, SubtaskState); 2]| {
        let union = RestoredUnion::new(&example().table, Epoch(42), states.into()).unwrap();
        union.last_append()
    };
    assert_eq!(last([state(0, &[3, 9]), state(1, &[5])]), Some(Micros(9)));
    assert_eq!(last([state(0, &[]), state(1, &[])]), None);
}

#[test]
fn a_commit_is_no_state_and_names_rows() {
    assert_eq!(
        SubtaskState::decode(&example().commit.encode()),
        Err(EnvelopeError::WrongKind {
            expected: Kind::SubtaskState,
            found: "Commit".into()
        })
    );
    let backwards = list(&[info("s", 5, 4)]).encode();
    assert_eq!(
        CommitList::decode(&backwards),
        Err(EnvelopeError::Undecodable(
            "commit of s from row 5 to 4 names no rows".into()
        ))
    );
}

proptest! {
    #[test]
    fn what_is_written_is_read(rows in prop::collection::vec(("[a-z/]{0,40}", 0..1_000_u64, 0..1_000_u64), 0..5)) {
        let commit = CommitList(rows.into_iter().map(|(stream, from, more)| info(&stream, from, from + more)).collect());
        let state = SubtaskState { commit: commit.clone(), ..example() };
        prop_assert_eq!(CommitList::decode(&commit.encode()), Ok(commit));
        prop_assert_eq!(SubtaskState::decode(&state.encode()), Ok(state));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(SubtaskState::decode(&bytes).is_err());
        prop_assert!(CommitList::decode(&bytes).is_err());
    }
}
