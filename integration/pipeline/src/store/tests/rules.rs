//! The rules of a lease, on a store that works.

use super::*;
use crate::store::error::OrderRule;

#[tokio::test]
async fn an_empty_store_restores_nothing_and_begins_with_epoch_one() {
    let (lease, restored) = host(&Store::in_memory()).await;
    assert!(restored.is_none());
    assert_eq!(
        (lease.next_epoch(), lease.lineage(), lease.generation()),
        (Epoch(1), 1, 1)
    );
}

#[tokio::test]
async fn a_completed_checkpoint_is_restored_with_the_right_to_commit_it() {
    let store = Store::in_memory();
    let (mut first, _) = host(&store).await;
    checkpoint(&mut first, 1).await.unwrap();
    assert_eq!(
        first.complete(&manifest(&first, 2)).await.unwrap().epoch(),
        Epoch(2)
    );

    let (mut second, restored) = host(&store).await;
    let restored = restored.unwrap();
    assert_eq!(restored.manifest, manifest_of(1, 2, 1));
    assert!(!restored.committed());
    let permit = restored.pending_commit.unwrap();
    assert_eq!(second.mark_committed(&permit).await.unwrap(), CommitMark::Created);
    assert_eq!(
        second.mark_committed(&permit).await.unwrap(),
        CommitMark::AlreadyThere
    );
    checkpoint(&mut second, 3).await.unwrap();

    let (_, restored) = host(&store).await;
    let restored = restored.unwrap();
    assert_eq!(restored.manifest, manifest_of(1, 3, 2));
    assert!(restored.committed());
}

#[tokio::test]
async fn the_next_epoch_waits_for_the_commit_of_the_one_before() {
    let (mut lease, _) = host(&Store::in_memory()).await;
    let permit = lease.complete(&manifest(&lease, 1)).await.unwrap();
    let refused = lease.complete(&manifest(&lease, 2)).await.unwrap_err();
    assert_eq!(rule(refused), OrderRule::CommitPending(Epoch(1)));
    lease.mark_committed(&permit).await.unwrap();
    checkpoint(&mut lease, 2).await.unwrap();
}

#[tokio::test]
async fn epochs_have_no_gaps_and_manifests_name_their_host() {
    let store = Store::in_memory();
    let mut lease = store.take_over(0, TakeOver::Refuse).await.unwrap();
    let first = manifest(&lease, 1);
    assert_eq!(
        rule(lease.complete(&first).await.unwrap_err()),
        OrderRule::NotRestored
    );
    lease.restore().await.unwrap();
    for epoch in [0, 2, 1_000_000] {
        let refused = lease.complete(&manifest(&lease, epoch)).await.unwrap_err();
        assert_eq!(rule(refused), OrderRule::NextIs(Epoch(1)));
    }
    for foreign in [manifest_of(1, 1, 2), manifest_of(2, 1, 1)] {
        assert_eq!(
            rule(lease.complete(&foreign).await.unwrap_err()),
            OrderRule::ForeignManifest
        );
    }
    lease.complete(&first).await.unwrap();
    assert_eq!(store.list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_last_ten_are_kept_and_older_ones_go_only_after_a_newer_commit() {
    let store = Store::in_memory();
    let (mut lease, _) = host(&store).await;
    checkpoints(&mut lease, 1..=10).await;
    let permit = lease.complete(&manifest(&lease, 11)).await.unwrap();
    assert_eq!(epochs(&store).await, (1..=11).collect::<Vec<_>>());
    lease.mark_committed(&permit).await.unwrap();
    assert_eq!(epochs(&store).await, (2..=11).collect::<Vec<_>>());
    assert_eq!(store.objects.list(CHECKPOINTS).await.unwrap().len(), 30);
}

#[tokio::test]
async fn generation_records_are_kept_for_a_while() {
    let store = Store::in_memory();
    for _ in 0..25 {
        host(&store).await;
    }
    let mut names = store.objects.list("generations").await.unwrap();
    names.sort();
    assert_eq!(
        names,
        (16..=25).map(|number| format!("{number:07}")).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn going_back_opens_a_lineage_that_outranks_the_newer_checkpoints() {
    let store = Store::in_memory();
    let (mut lease, _) = host(&store).await;
    checkpoints(&mut lease, 1..=4).await;
    let pending = lease.complete(&manifest(&lease, 5)).await.unwrap();

    let (mut lease, _) = host(&store).await;
    let reason = |error| match error {
        StoreError::NoSuchBase { epoch, reason, .. } => (epoch.0, reason),
        other => panic!("{other}"),
    };
    let gone = reason(lease.begin_lineage_from(Epoch(9)).await.unwrap_err());
    assert_eq!(gone, (9, "it is not kept any more"));
    let unproved = reason(lease.begin_lineage_from(Epoch(5)).await.unwrap_err());
    assert_eq!(unproved, (5, "its commit is not confirmed"));

    let restored = lease.begin_lineage_from(Epoch(2)).await.unwrap();
    let mut base = manifest_of(1, 2, 1);
    (base.lineage, base.generation) = (2, 2);
    assert_eq!(restored.manifest, base);
    assert!(restored.committed());
    assert_eq!((lease.next_epoch(), lease.lineage()), (Epoch(3), 2));

    let (mut lease, restored) = host(&store).await;
    assert_eq!(restored.unwrap().manifest, base);
    checkpoint(&mut lease, 3).await.unwrap();
    // A commit of the old lineage that is confirmed late changes nothing.
    lease.mark_committed(&pending).await.unwrap();
    assert_eq!(host(&store).await.1.unwrap().manifest, manifest_of(2, 3, 3));
}

#[tokio::test]
async fn a_state_begun_anew_no_longer_counts_what_was_before() {
    let store = Store::in_memory();
    let (mut lease, _) = host(&store).await;
    checkpoints(&mut lease, 1..=3).await;
    lease.begin_empty_lineage().await.unwrap();
    assert_eq!((lease.next_epoch(), lease.lineage()), (Epoch(1), 2));

    let (mut lease, restored) = host(&store).await;
    assert!(restored.is_none());
    checkpoint(&mut lease, 1).await.unwrap();
    assert_eq!(host(&store).await.1.unwrap().manifest, manifest_of(2, 1, 2));
    assert_eq!(epochs(&store).await, [1, 2, 3, 1]);
}

#[tokio::test]
async fn the_list_shows_leftovers_as_incomplete_and_pending_commits_as_such() {
    let store = Store::in_memory();
    let (mut lease, _) = host(&store).await;
    checkpoint(&mut lease, 1).await.unwrap();
    lease.complete(&manifest(&lease, 2)).await.unwrap();
    let leftover = "0001-0000000003-g0000001-07.manifest";
    let bytes = records::Record::to_bytes(&manifest_of(1, 3, 1));
    store.objects.claim(CHECKPOINTS, leftover, &bytes).await.unwrap();

    let shown: Vec<_> = store
        .list()
        .await
        .unwrap()
        .into_iter()
        .map(|info| {
            (
                info.epoch.0,
                info.complete,
                info.committed,
                info.manifest.unwrap(),
                info.file,
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            (
                1,
                true,
                true,
                manifest_of(1, 1, 1),
                "memory:/checkpoints/0001-0000000001-g0000001-01.manifest".into()
            ),
            (
                2,
                true,
                false,
                manifest_of(1, 2, 1),
                "memory:/checkpoints/0001-0000000002-g0000001-02.manifest".into()
            ),
            (
                3,
                false,
                false,
                manifest_of(1, 3, 1),
                format!("memory:/checkpoints/{leftover}")
            ),
        ]
    );
    assert_eq!(host(&store).await.1.unwrap().manifest, manifest_of(1, 2, 1));
}

async fn epochs(store: &Store) -> Vec<u64> {
    store
        .list()
        .await
        .unwrap()
        .iter()
        .map(|info| info.epoch.0)
        .collect()
}

fn rule(error: StoreError) -> OrderRule {
    match error {
        StoreError::OutOfOrder { rule, .. } => rule,
        other => panic!("{other}"),
    }
}
