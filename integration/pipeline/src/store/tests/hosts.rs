//! Two hosts on one store, one of them stopped anywhere; and answers that get lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::object_double::{Fault, ObjectDouble};
use super::*;

/// What readers of the table see: which checkpoint's rows, by epoch. Publishing is idempotent, as a flush is.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<BTreeMap<u64, Manifest>>>);

impl Table {
    fn publish(&self, manifest: &Manifest) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = manifest.epoch.0;
        assert!(
            epoch == 1 || rows.contains_key(&(epoch - 1)),
            "epoch {epoch} is visible before the one below it"
        );
        let visible = rows.entry(epoch).or_insert_with(|| manifest.clone());
        assert_eq!(
            visible, manifest,
            "two hosts published different rows as epoch {epoch}"
        );
    }

    fn rows(&self) -> BTreeMap<u64, Manifest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Takes checkpoints up to `last`, as the coordinator does, publishing in between.
async fn run(lease: &mut Lease, table: &Table, last: u64) -> Result<(), StoreError> {
    while lease.next_epoch().0 <= last {
        let manifest = manifest(lease, lease.next_epoch().0);
        let permit = lease.complete(&manifest).await?;
        lease.still_ours().await?;
        // A request of no meaning: one more place to be stopped at, between the check and the commit.
        lease.objects.list("nothing").await?;
        table.publish(&manifest);
        lease.mark_committed(&permit).await?;
    }
    Ok(())
}

/// Restores, replays a pending commit, and goes on; restarts when an older host's checkpoint came first.
async fn run_through(lease: &mut Lease, table: &Table, last: u64) -> Result<(), StoreError> {
    loop {
        if let Some(restored) = lease.restore().await?
            && let Some(permit) = restored.pending_commit
        {
            lease.still_ours().await?;
            table.publish(&restored.manifest);
            lease.mark_committed(&permit).await?;
        }
        match run(lease, table, last).await {
            Err(error) if error.restart_may_help() => {}
            ended => return ended,
        }
    }
}

/// Stops the old host before every one of its requests, lets a newer host run to `meanwhile`, wakes the old one, and
/// lets the newer one go on to the end. Returns how many places there were.
async fn stop_everywhere(meanwhile: Option<u64>) -> usize {
    for at in 1.. {
        let double = ObjectDouble::default();
        let table = Table::default();
        let mut old = double.store().take_over(0, TakeOver::Refuse).await.unwrap();
        old.restore().await.unwrap();
        run(&mut old, &table, 2).await.unwrap();

        let newer: Arc<Mutex<Option<Lease>>> = Arc::default();
        let (store, seen, taken) = (double.sound(), table.clone(), Arc::clone(&newer));
        double.pause_at(at, async move {
            let mut lease = store.take_over(1, TakeOver::Force).await.unwrap();
            match meanwhile {
                Some(last) => run_through(&mut lease, &seen, last).await.unwrap(),
                None => drop(lease.restore().await.unwrap()),
            }
            *taken.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease);
        });
        let woken = run(&mut old, &table, 4).await;
        if double.is_pause_left() {
            woken.unwrap();
            return at - 1;
        }
        let mut newer = newer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .unwrap();
        let ended = match woken {
            Ok(()) => run(&mut old, &table, 5).await,
            superseded => superseded,
        };
        assert!(
            matches!(ended, Err(StoreError::Superseded { ours: 1, by: 2, .. })),
            "stopped before request {at}, the old host went on: {ended:?}"
        );
        // The newer host may have restored before the old one's last checkpoint: it goes on from what it knows.
        if run(&mut newer, &table, 20).await.is_err() {
            run_through(&mut newer, &table, 20).await.unwrap();
        }
        let rows = table.rows();
        assert_eq!(
            rows.keys().copied().collect::<Vec<_>>(),
            (1..=20).collect::<Vec<_>>(),
            "stopped before {at}"
        );
        for info in double
            .sound()
            .list()
            .await
            .unwrap()
            .into_iter()
            .filter(|info| info.complete)
        {
            assert!(info.committed);
            assert_eq!(
                rows[&info.epoch.0],
                info.manifest.unwrap(),
                "stopped before request {at}"
            );
        }
    }
    unreachable!("the loop ends where the pause does not come")
}

#[tokio::test]
async fn a_host_stopped_anywhere_never_publishes_against_the_one_that_restored_meanwhile() {
    assert!(stop_everywhere(None).await > 15);
}

#[tokio::test]
async fn a_host_stopped_anywhere_never_publishes_against_the_one_that_went_on_meanwhile() {
    assert!(stop_everywhere(Some(4)).await > 15);
}

#[tokio::test]
async fn a_host_woken_after_its_claims_were_cleaned_up_never_publishes() {
    assert!(stop_everywhere(Some(18)).await > 15);
}

#[tokio::test]
async fn a_permit_is_given_only_for_a_checkpoint_that_every_newer_host_has_seen() {
    for at in 1.. {
        let double = ObjectDouble::default();
        let (mut old, _) = host(&double.store()).await;
        checkpoint(&mut old, 1).await.unwrap();
        let seen: Arc<Mutex<Option<Epoch>>> = Arc::default();
        let (store, noted) = (double.sound(), Arc::clone(&seen));
        double.pause_at(at, async move {
            let restored = host(&store).await.1.unwrap();
            *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(restored.manifest.epoch);
        });
        let permit = old.complete(&manifest(&old, 2)).await;
        let seen = *seen.lock().unwrap_or_else(PoisonError::into_inner);
        match (permit, seen) {
            (Ok(permit), None) => {
                assert_eq!(
                    (permit.epoch(), at),
                    (Epoch(2), 7),
                    "as many requests as are needed, and no more"
                );
                return;
            }
            (Ok(_), Some(seen)) => assert_eq!(seen, Epoch(2), "stopped before request {at}"),
            (Err(error), _) => assert!(error.is_superseded(), "stopped before request {at}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_stale_host_loses_each_step() {
    let store = Store::in_memory();
    let (mut old, _) = host(&store).await;
    let pending = old.complete(&manifest(&old, 1)).await.unwrap();
    let (newer, restored) = host(&store).await;
    assert_eq!(newer.generation(), 2);
    assert!(!restored.unwrap().committed());

    let superseded = |error| match error {
        StoreError::Superseded { ours, by, .. } => (ours, by),
        other => panic!("{other}"),
    };
    assert_eq!(superseded(old.still_ours().await.unwrap_err()), (1, 2));
    assert_eq!(superseded(old.begin_empty_lineage().await.unwrap_err()), (1, 2));
    // What it published before is true all the same.
    assert_eq!(old.mark_committed(&pending).await.unwrap(), CommitMark::Created);
    old.restore().await.unwrap();
    assert_eq!(
        superseded(old.complete(&manifest(&old, 2)).await.unwrap_err()),
        (1, 2)
    );
    assert_eq!(
        superseded(old.begin_lineage_from(Epoch(1)).await.unwrap_err()),
        (1, 2)
    );
}

#[tokio::test]
async fn two_hosts_that_start_at_once_get_different_generations() {
    let double = ObjectDouble::default();
    let other = double.sound();
    // Between the listing and the claim.
    double.pause_at(2, async move {
        assert_eq!(
            other.take_over(0, TakeOver::Refuse).await.unwrap().generation(),
            1
        );
    });
    assert_eq!(
        double
            .store()
            .take_over(0, TakeOver::Refuse)
            .await
            .unwrap()
            .generation(),
        2
    );
}

#[tokio::test]
async fn a_state_replaced_under_a_host_stops_it() {
    let double = ObjectDouble::default();
    let (mut old, _) = host(&double.store()).await;
    checkpoint(&mut old, 1).await.unwrap();
    let store = double.sound();
    store
        .objects
        .delete("generations", &["0000001".to_owned()])
        .await
        .unwrap();
    let gone = "the state at mem://state was removed or replaced while this run (generation 1) used it; this run stops";
    assert_eq!(old.still_ours().await.unwrap_err().to_string(), gone);
    let (newer, _) = host(&store).await;
    assert_eq!(newer.generation(), 1);
    assert_eq!(
        old.complete(&manifest(&old, 2)).await.unwrap_err().to_string(),
        gone
    );
    newer.still_ours().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_any_put_is_settled_by_reading_back() {
    for ending in ["0000001", ".manifest", ".claim", ".committed"] {
        for fault in [Fault::LoseAnswer, Fault::AnswerExists, Fault::Refuse] {
            let double = ObjectDouble::default();
            double.at_put(ending, fault);
            let (mut lease, _) = host(&double.store()).await;
            let permit = lease.complete(&manifest(&lease, 1)).await.unwrap();
            lease.mark_committed(&permit).await.unwrap();
            assert!(double.is_played(), "{ending} {fault:?}");
            let restored = host(&double.sound()).await.1.unwrap();
            assert_eq!(restored.manifest, manifest_of(1, 1, 1), "{ending} {fault:?}");
            assert!(restored.committed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_whose_read_back_fails_too_is_settled_by_trying_again() {
    let double = ObjectDouble::default();
    let (mut lease, _) = host(&double.store()).await;
    double.at_put(".claim", Fault::LoseAnswer);
    double.fail_read(".claim");
    lease.complete(&manifest(&lease, 1)).await.unwrap();
    assert!(double.is_played());
}

#[tokio::test(start_paused = true)]
async fn a_claim_applied_after_its_host_gave_up_is_found_and_replayed() {
    let double = ObjectDouble::default();
    let (mut lease, _) = host(&double.store()).await;
    for _ in 0..4 {
        double.at_put(".claim", Fault::Late);
    }
    let error = lease.complete(&manifest(&lease, 1)).await.unwrap_err();
    assert!(error.restart_may_help(), "{error}");
    assert_eq!(
        error.to_string(),
        "cannot write mem://state/checkpoints/0001-0000000001.claim: Generic double error: connection reset"
    );

    // The host restarts and sees nothing; then the claim arrives; the second attempt, equal in all else, meets it.
    assert!(lease.restore().await.unwrap().is_none());
    double.apply_late().await;
    let lost = lease.complete(&manifest(&lease, 1)).await.unwrap_err();
    assert!(
        matches!(
            &lost,
            StoreError::ClaimLost {
                epoch: Epoch(1),
                by: 1,
                ..
            }
        ),
        "{lost}"
    );
    assert!(lost.restart_may_help());
    let restored = lease.restore().await.unwrap().unwrap();
    assert_eq!(restored.manifest, manifest_of(1, 1, 1));
    lease
        .mark_committed(&restored.pending_commit.unwrap())
        .await
        .unwrap();
    checkpoint(&mut lease, 2).await.unwrap();
}

#[tokio::test]
async fn a_put_that_is_forbidden_is_not_tried_again() {
    let double = ObjectDouble::default();
    double.at_put("0000001", Fault::Forbid);
    let error = double.store().take_over(0, TakeOver::Refuse).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("cannot write mem://state/generations/0000001: "),
        "{text}"
    );
    assert!(text.contains("no right to create objects"), "{text}");
}

#[tokio::test]
async fn after_a_failed_step_the_store_is_read_before_the_next() {
    let double = ObjectDouble::default();
    let (mut lease, _) = host(&double.store()).await;
    double.at_put(".manifest", Fault::Forbid);
    lease.complete(&manifest(&lease, 1)).await.unwrap_err();
    let refused = lease.complete(&manifest_of(1, 1, 1)).await.unwrap_err();
    assert!(
        matches!(
            refused,
            StoreError::OutOfOrder {
                rule: OrderRule::NotRestored,
                ..
            }
        ),
        "{refused}"
    );
    lease.restore().await.unwrap();
    checkpoint(&mut lease, 1).await.unwrap();
}
