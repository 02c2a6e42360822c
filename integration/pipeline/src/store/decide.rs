//! The store's decisions: observed names and bytes in, what to do out. No I/O here.

use std::collections::BTreeSet;

use super::names::{self, CheckpointId, FileName};

/// Completed checkpoints that are kept, the newest ones (design.md section 4); also records of generations.
pub(super) const KEEP: usize = 10;

/// What a checkpoint folder holds, by the names in it.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    claims: BTreeSet<CheckpointId>,
    markers: BTreeSet<CheckpointId>,
    manifests: Vec<(CheckpointId, String)>,
    temporaries: Vec<String>,
}

/// The newest checkpoint a folder speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newest {
    /// None is complete.
    Nothing,
    /// This one; whether its commit is confirmed.
    Complete { id: CheckpointId, committed: bool },
    /// A commit is confirmed of a checkpoint whose claim is gone: going on from an older one would repeat its rows.
    ClaimGone(CheckpointId),
}

/// Names to delete: all of `first` before any of `then`, so that a claim never outlives its manifest.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CleanupPlan {
    pub(super) first: Vec<String>,
    pub(super) then: Vec<String>,
}

impl Catalog {
    pub(super) fn of(names: Vec<String>) -> Self {
        let mut catalog = Self::default();
        for name in names {
            match FileName::parse(&name) {
                FileName::Claim(id) => {
                    catalog.claims.insert(id);
                }
                FileName::Committed(id) => {
                    catalog.markers.insert(id);
                }
                FileName::Manifest { id, .. } => catalog.manifests.push((id, name)),
                FileName::Temporary => catalog.temporaries.push(name),
                FileName::Unknown => {}
            }
        }
        catalog.manifests.sort();
        catalog
    }

    pub(super) fn newest(&self) -> Newest {
        let marked = self.markers.last();
        match self.claims.last() {
            Some(claimed) if marked.is_none_or(|marked| marked <= claimed) => Newest::Complete {
                id: *claimed,
                committed: self.is_marked(*claimed),
            },
            _ => marked.map_or(Newest::Nothing, |marked| Newest::ClaimGone(*marked)),
        }
    }

    /// A lineage beyond every one that a file speaks of, damaged or not.
    pub(super) fn next_lineage(&self) -> u64 {
        let claimed = self.claims.last().map_or(0, |id| id.lineage);
        let marked = self.markers.last().map_or(0, |id| id.lineage);
        claimed.max(marked).saturating_add(1)
    }

    pub(super) fn claims(&self) -> impl DoubleEndedIterator<Item = CheckpointId> {
        self.claims.iter().copied()
    }

    pub(super) fn manifests(&self) -> impl Iterator<Item = &(CheckpointId, String)> {
        self.manifests.iter()
    }

    pub(super) fn is_marked(&self, id: CheckpointId) -> bool {
        self.markers.contains(&id)
    }

    /// Everything below the `keep` newest complete checkpoints, and leftovers of broken writes.
    ///
    /// Manifests without a claim stay until they fall below: their writer may be about to claim them.
    pub(super) fn cleanup(&self, keep: usize) -> CleanupPlan {
        let Newest::Complete { committed: true, .. } = self.newest() else {
            return CleanupPlan::default();
        };
        let Some(oldest_kept) = self.claims.iter().rev().take(keep).next_back().copied() else {
            return CleanupPlan::default();
        };
        let claims = self
            .claims
            .range(..oldest_kept)
            .map(|id| FileName::Claim(*id).to_string());
        let markers = self
            .markers
            .range(..oldest_kept)
            .map(|id| FileName::Committed(*id).to_string());
        let manifests = self
            .manifests
            .iter()
            .filter(|(id, _)| *id < oldest_kept)
            .map(|(_, name)| name.clone());
        CleanupPlan {
            first: claims.collect(),
            then: markers
                .chain(manifests)
                .chain(self.temporaries.iter().cloned())
                .collect(),
        }
    }
}

/// What the generation folder says about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Ours is the newest.
    Ours,
    /// A newer one was taken.
    SupersededBy(u64),
    /// Our record is not there, or not what we wrote: the state was removed or replaced under us.
    RecordGone,
}

/// Judges a lease by the names in the generation folder and by what its own record says now.
pub(super) fn standing(ours: u64, names: &[String], record_is_intact: bool) -> Standing {
    match newest_generation(names) {
        Some(newest) if newest > ours => Standing::SupersededBy(newest),
        Some(newest) if newest == ours && record_is_intact => Standing::Ours,
        _ => Standing::RecordGone,
    }
}

/// The greatest generation among names.
pub(super) fn newest_generation(names: &[String]) -> Option<u64> {
    names
        .iter()
        .filter_map(|name| names::parse_generation(name))
        .max()
}

/// Records of generations that are no longer of interest, and leftovers of broken writes.
pub(super) fn outdated_generations(ours: u64, names: &[String]) -> Vec<String> {
    let outdated = |name: &&String| {
        FileName::parse(name) == FileName::Temporary
            || names::parse_generation(name).is_some_and(|number| number.saturating_add(KEEP as u64) <= ours)
    };
    names.iter().filter(outdated).cloned().collect()
}

/// How a create-if-absent was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Written by this call.
    Created,
    /// Something has that name; perhaps an earlier try of ours whose answer was lost.
    Exists,
    /// It failed after it may have been applied.
    InDoubt,
}

/// What a create-if-absent came to, once read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// Ours by this call.
    Created,
    /// Ours, from before or by a call whose answer was lost.
    SameBytes,
    /// Another's; these bytes.
    OtherBytes(Vec<u8>),
}

/// Judges a create-if-absent by its answer and by what is read back. `None`: unknown still, try again.
pub(super) fn judge_claim(answer: Answer, wanted: &[u8], found: Option<Vec<u8>>) -> Option<Claim> {
    match (answer, found) {
        (Answer::Created, _) => Some(Claim::Created),
        (_, Some(bytes)) if bytes == wanted => Some(Claim::SameBytes),
        (_, Some(bytes)) => Some(Claim::OtherBytes(bytes)),
        (Answer::Exists | Answer::InDoubt, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use bigquery_sink_state::Epoch;

    use super::*;

    fn catalog(names: &[&str]) -> Catalog {
        Catalog::of(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn id(lineage: u64, epoch: u64) -> CheckpointId {
        CheckpointId {
            lineage,
            epoch: Epoch(epoch),
        }
    }

    #[test]
    fn a_manifest_without_a_claim_is_no_checkpoint() {
        assert_eq!(
            catalog(&["0001-0000000001-g0000001-01.manifest"]).newest(),
            Newest::Nothing
        );
    }

    #[test]
    fn the_newest_lineage_wins_over_a_greater_epoch() {
        let names = [
            "0001-0000000009.claim",
            "0002-0000000003.claim",
            "0001-0000000009.committed",
        ];
        assert_eq!(
            catalog(&names).newest(),
            Newest::Complete {
                id: id(2, 3),
                committed: false
            }
        );
    }

    #[test]
    fn a_marker_without_its_claim_is_never_stepped_over() {
        let names = [
            "0001-0000000001.claim",
            "0001-0000000001.committed",
            "0001-0000000002.committed",
        ];
        assert_eq!(catalog(&names).newest(), Newest::ClaimGone(id(1, 2)));
        assert_eq!(catalog(&names).cleanup(1), CleanupPlan::default());
    }

    #[test]
    fn cleanup_waits_for_the_newest_commit_and_leaves_unknown_files_alone() {
        let mut names = vec![
            "0001-0000000001-g0000001-01.manifest",
            "0001-0000000001.claim",
            "0001-0000000001.committed",
            "0001-0000000002-g0000001-02.manifest",
            "0001-0000000002-g0000002-01.manifest",
            "0001-0000000002.claim",
            ".0001-0000000002.claim.1.tmp",
            "notes.txt",
        ];
        assert_eq!(catalog(&names).cleanup(1), CleanupPlan::default());
        names.push("0001-0000000002.committed");
        assert_eq!(
            catalog(&names).cleanup(1),
            CleanupPlan {
                first: vec!["0001-0000000001.claim".into()],
                then: vec![
                    "0001-0000000001.committed".into(),
                    "0001-0000000001-g0000001-01.manifest".into(),
                    ".0001-0000000002.claim.1.tmp".into(),
                ],
            }
        );
        assert_eq!(catalog(&names).cleanup(2).first, Vec::<String>::new());
    }

    #[test]
    fn a_lease_stands_only_while_its_own_record_is_the_newest() {
        let names: Vec<String> = ["0000001", "0000002", "x"].map(String::from).to_vec();
        assert_eq!(standing(2, &names, true), Standing::Ours);
        assert_eq!(standing(1, &names, true), Standing::SupersededBy(2));
        assert_eq!(standing(2, &names, false), Standing::RecordGone);
        assert_eq!(standing(3, &names, true), Standing::RecordGone);
        assert_eq!(standing(1, &[], true), Standing::RecordGone);
    }

    #[test]
    fn a_lost_answer_is_settled_by_what_is_read_back() {
        let wanted = b"ours".as_slice();
        for answer in [Answer::Exists, Answer::InDoubt] {
            assert_eq!(
                judge_claim(answer, wanted, Some(b"ours".to_vec())),
                Some(Claim::SameBytes)
            );
            assert_eq!(
                judge_claim(answer, wanted, Some(b"theirs".to_vec())),
                Some(Claim::OtherBytes(b"theirs".to_vec()))
            );
            assert_eq!(judge_claim(answer, wanted, None), None);
        }
        assert_eq!(judge_claim(Answer::Created, wanted, None), Some(Claim::Created));
    }
}
