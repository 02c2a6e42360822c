//! Files that rot, and bytes that must stay readable.

use super::*;
use crate::store::records::{Claimed, CommitMarker, EpochClaim, GenerationRecord, ManifestRef, Record};
use crate::store::tests::object_double::ObjectDouble;
use bigquery_sink_state::envelope::EnvelopeError;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory};

const MANIFEST: &str = "0001-0000000002-g0000001-02.manifest";
const CLAIM: &str = "0001-0000000002.claim";
const COMMITTED: &str = "0001-0000000002.committed";

/// Two whole checkpoints, and the objects to spoil.
async fn two_checkpoints() -> (Arc<InMemory>, Store) {
    let memory = Arc::new(InMemory::new());
    let store = Store::from_object_store(
        Arc::clone(&memory) as Arc<dyn ObjectStore>,
        ObjectPath::default(),
        "mem:",
    );
    let (mut lease, _) = host(&store).await;
    checkpoints(&mut lease, 1..=2).await;
    (memory, store)
}

fn path(name: &str) -> ObjectPath {
    ObjectPath::from(format!("checkpoints/{name}"))
}

async fn bytes_of(memory: &InMemory, name: &str) -> Vec<u8> {
    memory
        .get(&path(name))
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap()
        .to_vec()
}

async fn damage_after(store: &Store) -> (String, Damage) {
    let mut lease = store.take_over(0, TakeOver::Refuse).await.unwrap();
    match lease.restore().await {
        Err(StoreError::Damaged { file, damage }) => (file, damage),
        other => panic!("restored {other:?}"),
    }
}

#[tokio::test]
async fn every_cut_and_every_flipped_bit_of_the_newest_checkpoint_is_an_error_that_names_the_file() {
    let (memory, store) = two_checkpoints().await;
    let mut lease = store.take_over(0, TakeOver::Refuse).await.unwrap();
    for name in [MANIFEST, CLAIM, COMMITTED] {
        let whole = bytes_of(&memory, name).await;
        let cuts = (0..whole.len()).map(|cut| whole[..cut].to_vec());
        let flips = (0..whole.len() * 8).map(|bit| {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes
        });
        for (number, spoilt) in cuts.chain(flips).enumerate() {
            memory.put(&path(name), spoilt.into()).await.unwrap();
            match lease.restore().await {
                Err(StoreError::Damaged {
                    file,
                    damage: Damage::Bytes(_),
                }) => {
                    assert_eq!(file, format!("mem:/checkpoints/{name}"));
                }
                other => panic!("{name} damaged in way {number}: {other:?}"),
            }
        }
        memory.put(&path(name), whole.into()).await.unwrap();
    }
    assert_eq!(
        lease.restore().await.unwrap().unwrap().manifest,
        manifest_of(1, 2, 1)
    );
}

#[tokio::test]
async fn each_kind_of_damage_is_named() {
    let (memory, store) = two_checkpoints().await;
    let whole = bytes_of(&memory, MANIFEST).await;
    let file = format!("mem:/checkpoints/{MANIFEST}");
    let other = manifest_of(1, 2, 1);
    let other = Manifest {
        rows_read: 1,
        ..other
    }
    .to_bytes();
    let newer = bigquery_sink_state::envelope::seal(bigquery_sink_state::envelope::Kind::Manifest, 2, b"");
    let half = whole[..whole.len() / 2].to_vec();
    let cases = [
        (
            half.clone(),
            Damage::Bytes(EnvelopeError::Truncated {
                expected: whole.len(),
                found: half.len(),
            }),
        ),
        (
            b"not one of our files".to_vec(),
            Damage::Bytes(EnvelopeError::WrongMagic),
        ),
        (
            newer,
            Damage::Bytes(EnvelopeError::TooNew { found: 2, newest: 1 }),
        ),
        (
            other,
            Damage::Mismatch {
                named_by: CLAIM.into(),
                what: "content",
            },
        ),
    ];
    for (bytes, damage) in cases {
        memory.put(&path(MANIFEST), bytes.into()).await.unwrap();
        assert_eq!(damage_after(&store).await, (file.clone(), damage));
    }
    memory.delete(&path(MANIFEST)).await.unwrap();
    let (_, damage) = damage_after(&store).await;
    assert_eq!(
        damage,
        Damage::Missing {
            named_by: CLAIM.into()
        }
    );
}

#[tokio::test]
async fn files_that_were_mixed_up_are_found() {
    let (memory, store) = two_checkpoints().await;
    let first = bytes_of(&memory, "0001-0000000001.claim").await;
    let whole = bytes_of(&memory, CLAIM).await;
    memory.put(&path(CLAIM), first.into()).await.unwrap();
    let mismatch = |named_by: &str, what| Damage::Mismatch {
        named_by: named_by.to_owned(),
        what,
    };
    let (file, damage) = damage_after(&store).await;
    assert_eq!(
        (file.as_str(), damage),
        (
            "mem:/checkpoints/0001-0000000002.claim",
            mismatch("its name", "epoch")
        )
    );
    memory.put(&path(CLAIM), whole.into()).await.unwrap();

    let first = bytes_of(&memory, "0001-0000000001.committed").await;
    memory.put(&path(COMMITTED), first.into()).await.unwrap();
    assert_eq!(damage_after(&store).await.1, mismatch(CLAIM, "manifest"));
}

#[tokio::test]
async fn a_lost_claim_of_a_committed_checkpoint_is_no_step_back() {
    let (memory, store) = two_checkpoints().await;
    memory.delete(&path(CLAIM)).await.unwrap();
    let expected = Damage::Missing {
        named_by: COMMITTED.into(),
    };
    assert_eq!(
        damage_after(&store).await,
        ("mem:/checkpoints/0001-0000000002.claim".into(), expected)
    );
}

#[tokio::test]
async fn going_back_is_the_way_out_of_a_damaged_newest_checkpoint() {
    let (memory, store) = two_checkpoints().await;
    memory.put(&path(MANIFEST), b"rot".to_vec().into()).await.unwrap();
    let mut lease = store.take_over(0, TakeOver::Refuse).await.unwrap();
    lease.begin_lineage_from(Epoch(1)).await.unwrap();
    let restored = lease.restore().await.unwrap().unwrap();
    assert_eq!(
        (restored.manifest.epoch, restored.manifest.lineage),
        (Epoch(1), 2)
    );
    checkpoint(&mut lease, 2).await.unwrap();
}

#[tokio::test]
async fn the_list_goes_on_past_a_damaged_checkpoint() {
    let (memory, store) = two_checkpoints().await;
    memory
        .put(&path("0001-0000000001.claim"), b"rot".to_vec().into())
        .await
        .unwrap();
    let listed = store.list().await.unwrap();
    let shown: Vec<_> = listed
        .iter()
        .filter(|info| info.complete)
        .map(|info| {
            (
                info.epoch.0,
                info.committed,
                info.manifest
                    .as_ref()
                    .map_err(ToString::to_string)
                    .map(|manifest| manifest.epoch.0),
            )
        })
        .collect();
    let error = "checkpoint file mem:/checkpoints/0001-0000000001.claim is damaged: truncated: 3 bytes where 16 were \
                 written; put back a good copy of it, or start anew with --new-state";
    assert_eq!(shown, [(1, true, Err(error.to_owned())), (2, true, Ok(2))]);
}

#[tokio::test]
async fn names_in_a_store_are_stable() {
    let double = ObjectDouble::default();
    let (mut lease, _) = host(&double.store()).await;
    checkpoint(&mut lease, 1).await.unwrap();
    lease.complete(&manifest(&lease, 2)).await.unwrap();
    let store = double.sound();
    let mut names = store.objects.list(CHECKPOINTS).await.unwrap();
    names.sort();
    assert_eq!(
        names,
        [
            "0001-0000000001-g0000001-01.manifest",
            "0001-0000000001.claim",
            "0001-0000000001.committed",
            "0001-0000000002-g0000001-02.manifest",
            "0001-0000000002.claim",
        ]
    );
    assert_eq!(store.objects.list("generations").await.unwrap(), ["0000001"]);
}

fn golden_claim(content: Claimed) -> EpochClaim {
    EpochClaim {
        lineage: 1,
        epoch: Epoch(12),
        generation: 3,
        content,
    }
}

fn golden_reference() -> ManifestRef {
    ManifestRef {
        name: "0001-0000000012-g0000003-01.manifest".to_owned(),
        length: 300,
        crc32c: 0x1234_5678,
    }
}

/// Compares with the file of the release that wrote this version; every later build must read it.
fn check_golden<T: Record + PartialEq + std::fmt::Debug>(golden: &[u8], value: &T) {
    assert_eq!(T::from_bytes(golden).as_ref(), Ok(value));
    assert_eq!(value.to_bytes(), golden);
}

#[test]
fn files_of_version_one_are_read_by_this_build() {
    check_golden(
        include_bytes!("../golden/manifest-v1.bin"),
        &manifest_of(1, 12, 3),
    );
    let checkpoint = golden_claim(Claimed::Checkpoint(golden_reference()));
    check_golden(include_bytes!("../golden/claim-v1.bin"), &checkpoint);
    let copy = golden_claim(Claimed::Copy {
        of_lineage: 1,
        manifest: golden_reference(),
    });
    check_golden(include_bytes!("../golden/claim-copy-v1.bin"), &copy);
    check_golden(
        include_bytes!("../golden/claim-nothing-v1.bin"),
        &golden_claim(Claimed::Nothing),
    );
    let marker = CommitMarker {
        lineage: 1,
        epoch: Epoch(12),
        manifest: golden_reference(),
    };
    check_golden(include_bytes!("../golden/committed-v1.bin"), &marker);
    let owner = *b"0123456789abcdef";
    let record = GenerationRecord {
        generation: 3,
        owner,
        process: 4242,
        started_at_micros: 1_700_000_000_000_000,
    };
    check_golden(include_bytes!("../golden/generation-v1.bin"), &record);
}
