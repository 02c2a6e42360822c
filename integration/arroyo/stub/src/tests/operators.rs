//! The operator: what it puts into the state tables, and when it acknowledges.

use std::time::SystemTime;

use prost::Message as _;

use super::*;
use crate::errors::{DataflowError, DataflowResult, ErrorDomain, RetryHint};
use crate::grpc::rpc::{GlobalKeyedTableConfig, TableEnum};
use crate::types::{CheckpointBarrier, SignalMessage};

const NOTHING: [u32; 0] = [];

impl Subtask {
    async fn start(&mut self) -> DataflowResult<()> {
        self.operator.on_start(&mut self.context).await
    }

    async fn give(&mut self, ids: std::ops::Range<i64>) {
        self.operator
            .process_batch(rows(ids), &mut self.context, &mut Nowhere)
            .await
            .unwrap();
    }

    /// What a barrier puts into the state tables.
    async fn checkpoint(&mut self, epoch: u32) -> (Vec<(u32, Vec<u8>)>, Vec<(String, Vec<u8>)>) {
        let barrier = CheckpointBarrier {
            epoch,
            min_epoch: 1,
            timestamp: SystemTime::UNIX_EPOCH,
            then_stop: false,
        };
        self.operator
            .handle_checkpoint(barrier, &mut self.context, &mut Nowhere)
            .await
            .unwrap();
        let states = self
            .context
            .table_manager
            .get_global_keyed_state("s")
            .await
            .unwrap();
        (
            states.take_inserted(),
            self.context.table_manager.take_committing(),
        )
    }

    async fn commit(&mut self, epoch: u32, entries: &HashMap<u32, Vec<u8>>) -> DataflowResult<()> {
        let data = HashMap::from([("c".to_owned(), entries.clone())]);
        self.operator.handle_commit(epoch, &data, &mut self.context).await
    }

    /// The subtasks for which commits were acknowledged since the last call.
    fn acknowledged(&mut self, epoch: u64) -> Vec<u32> {
        let mut subtasks = Vec::new();
        while let Ok(ControlResp::CheckpointEvent(event)) = self.answers.try_recv() {
            assert_eq!(
                (
                    event.checkpoint_epoch,
                    event.operator_idx,
                    event.operator_id.as_str()
                ),
                (epoch, 3, "sink_orders_3")
            );
            subtasks.push(event.subtask_idx);
        }
        subtasks
    }
}

#[tokio::test]
async fn t4_t6_t7_state_and_commit_data_once_in_every_epoch_and_one_acknowledgement() {
    let world = World::new().await;
    let mut subtask = world.subtask(&[], (1, 2), CheckpointFilePathLayout::Legacy, &HashMap::new());
    subtask.start().await.unwrap();
    for epoch in 1..=3 {
        // Nothing comes with the last one.
        if epoch < 3 {
            let first = i64::from(epoch) * 10;
            subtask.give(first..first + 10).await;
        }
        let (states, committing) = subtask.checkpoint(epoch).await;
        assert_eq!(states.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [1]);
        let [(table, entry)] = &committing[..] else {
            panic!("{} entries", committing.len());
        };
        assert_eq!(table, "c");
        assert_eq!(
            subtask.acknowledged(epoch.into()),
            NOTHING,
            "not before the commit"
        );
        subtask
            .commit(epoch, &HashMap::from([(1, entry.clone())]))
            .await
            .unwrap();
        assert_eq!(subtask.acknowledged(epoch.into()), [1]);
    }
    assert_eq!(world.visible(), (10..30).collect::<Vec<_>>());
}

#[tokio::test]
async fn t4_a_commit_that_failed_is_not_acknowledged() {
    let world = World::new().await;
    let mut subtask = world.subtask(&[], (0, 1), CheckpointFilePathLayout::Legacy, &HashMap::new());
    subtask.start().await.unwrap();
    subtask.give(0..5).await;
    let (_, committing) = subtask.checkpoint(1).await;
    let damaged = HashMap::from([(0, committing[0].1[..8].to_vec())]);
    subtask.commit(1, &damaged).await.unwrap_err();
    assert_eq!(subtask.acknowledged(1), NOTHING);
    assert_eq!(world.visible(), [0; 0]);
}

#[tokio::test]
async fn t5_the_tables_that_the_engine_is_to_keep() {
    let world = World::new().await;
    for (mode, is_committing) in [("exactly_once", true), ("at_least_once", false)] {
        let subtask = world.subtask(
            &[("write.mode", mode)],
            (0, 1),
            CheckpointFilePathLayout::Legacy,
            &HashMap::new(),
        );
        assert_eq!(subtask.operator.is_committing(), is_committing);
        let mut flags = Vec::new();
        for (name, table) in subtask.operator.tables() {
            assert_eq!(table.table_type, TableEnum::GlobalKeyValue as i32);
            let config = GlobalKeyedTableConfig::decode(&table.config[..]).unwrap();
            assert_eq!(config.table_name, name);
            flags.push((name, config.uses_two_phase_commit));
        }
        flags.sort();
        let mut due = vec![("s".to_owned(), false)];
        if is_committing {
            due.insert(0, ("c".to_owned(), true));
        }
        assert_eq!(flags, due, "{mode}");
    }
}

#[tokio::test]
async fn t8_who_replays_a_commit_acknowledges_for_subtasks_that_are_gone_where_a_worker_waits_for_them() {
    for (layout, due) in [
        (CheckpointFilePathLayout::Legacy, vec![0]),
        (CheckpointFilePathLayout::Protocol { generation: 2 }, vec![0, 1]),
    ] {
        let world = World::new().await;
        let (mut states, mut entries) = (HashMap::new(), HashMap::new());
        for index in 0..2 {
            let mut old = world.subtask(&[], (index, 2), layout.clone(), &HashMap::new());
            old.start().await.unwrap();
            let first = i64::from(index) * 10;
            old.give(first..first + 10).await;
            let (inserted, committing) = old.checkpoint(1).await;
            states.extend(inserted);
            entries.insert(index, committing[0].1.clone());
        }
        let mut new = world.subtask(&[], (0, 1), layout, &states);
        new.start().await.unwrap();
        new.commit(1, &entries).await.unwrap();
        assert_eq!(new.acknowledged(1), due);
        assert_eq!(world.visible(), (0..20).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn t1_and_t2_the_end_of_data_alone_publishes() {
    for (last, published) in [
        (None, 0),
        (Some(SignalMessage::Stop), 0),
        (Some(SignalMessage::EndOfData), 5),
    ] {
        let world = World::new().await;
        let mut subtask = world.subtask(&[], (0, 1), CheckpointFilePathLayout::Legacy, &HashMap::new());
        subtask.start().await.unwrap();
        subtask.give(0..5).await;
        let Subtask {
            operator, context, ..
        } = &mut subtask;
        operator.on_close(&last, context, &mut Nowhere).await.unwrap();
        assert_eq!(world.visible(), (0..published).collect::<Vec<_>>(), "{last:?}");
    }
}

#[tokio::test]
async fn t13_errors_say_whose_fault_it_is_and_whether_a_restart_helps() {
    let world = World::new().await;
    let unmade = [("table.create", "never")];
    let mut options: HashMap<&str, &str> = HashMap::from(unmade);
    options.insert("table", "missing");
    let mut given = world.options(&[]);
    for (name, value) in options {
        given.put(name, value);
    }
    let connection = BigQueryConnector {}.from_options("orders", &mut given, Some(&schema()), None);
    let config: OperatorConfig = serde_json::from_str(&connection.unwrap().config).unwrap();
    let mut subtask = world.subtask(&[], (0, 1), CheckpointFilePathLayout::Legacy, &HashMap::new());
    let profile = serde_json::from_value(config.connection.clone()).unwrap();
    let table = serde_json::from_value(config.table.clone()).unwrap();
    subtask.operator = BigQueryConnector {}
        .make_operator(profile, table, config)
        .unwrap()
        .0;
    let Err(DataflowError::ConnectorError {
        domain,
        retry,
        error,
        source,
    }) = subtask.start().await
    else {
        panic!("a table that is missing");
    };
    assert_eq!((domain, retry), (ErrorDomain::User, RetryHint::NoRetry));
    assert!(
        error.contains("projects/shop/datasets/sales/tables/missing"),
        "{error}"
    );
    assert_eq!(source.unwrap().to_string(), error);
}

#[tokio::test]
async fn a_tick_comes_every_second_and_the_table_is_shown() {
    let world = World::new().await;
    let mut subtask = world.subtask(&[], (0, 1), CheckpointFilePathLayout::Legacy, &HashMap::new());
    let shown = subtask.operator.display();
    let table = "projects/shop/datasets/sales/tables/orders".to_owned();
    assert_eq!(
        shown.fields,
        [("table", crate::operator::AsDisplayable::String(table))]
    );
    assert_eq!(
        subtask.operator.tick_interval(),
        Some(std::time::Duration::from_secs(1))
    );
    subtask.start().await.unwrap();
    let Subtask {
        operator, context, ..
    } = &mut subtask;
    operator.handle_tick(0, context, &mut Nowhere).await.unwrap();
}
