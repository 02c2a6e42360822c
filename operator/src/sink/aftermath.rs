//! What a failure means for the rows where the table itself may be what changed: which are visible, which come again, which are lost.

use std::time::{Duration, SystemTime};

use bigquery_sink_state::{Code, Epoch, Failure, FailureKind, Fault, Micros, StorageCode};
use humantime::format_rfc3339_seconds;
use tokio::time::timeout;
use tonic::Code as GrpcCode;

use super::Environment;
use crate::clock::Clock;
use crate::options::{SinkOptions, WriteMode};
use crate::tables;

/// The job has failed already; nobody waits long for the reason.
const LOOK: Duration = Duration::from_secs(10);

/// What the sink remembers for the case that it fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aftermath {
    started_at: SystemTime,
    /// When the table was created that the start found or made, where it knows.
    created_at: Option<SystemTime>,
    /// A moment at which a table was there that rows went to, or would have gone to.
    there_at: Option<SystemTime>,
    latest: Option<Trouble>,
    prepared: Option<Epoch>,
    published: Option<Epoch>,
}

/// Faults by which a changed table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// The table or the stream is not found: dropped, replaced, expired.
    NotFound,
    /// The table no longer takes the columns, or the rows.
    Misfit,
}

/// What has become of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Missing,
    CreatedAt(SystemTime),
    Unknown,
}

impl Aftermath {
    /// Of a sink that has looked at its table, and was restored from a checkpoint up to which rows went out at that time, if they did.
    pub(super) fn new(clock: &Clock, created_at: Option<SystemTime>, restored: Option<Micros>) -> Self {
        let there_at = match (restored, created_at) {
            (Some(last_append), _) => Some(system_time(last_append)),
            // The start itself may have made it, by a clock that is not ours.
            (None, Some(_)) => None,
            (None, None) => Some(system_time(clock.now())),
        };
        Self {
            started_at: system_time(clock.started_at),
            created_at,
            there_at,
            latest: None,
            prepared: None,
            published: None,
        }
    }

    /// A refusal or a loss.
    pub(super) fn saw(&mut self, fault: &Fault) {
        self.latest = match (fault.code, fault.storage_code) {
            (Code::NotFound, _) => Some(Trouble::NotFound),
            (_, Some(StorageCode::SchemaMismatchExtraFields)) | (Code::InvalidArgument, None) => {
                Some(Trouble::Misfit)
            }
            _ => None,
        };
    }

    pub(super) fn prepared(&mut self, epoch: Epoch) {
        self.prepared = Some(epoch);
    }

    pub(super) fn published(&mut self, epoch: Epoch) {
        self.published = Some(epoch);
    }

    /// What is to be said beside the failure; nothing if the table has no part in it.
    pub(super) async fn of(
        &self,
        failure: &Failure,
        options: &SinkOptions,
        environment: &Environment,
    ) -> String {
        let mut said = String::new();
        let mut say = |text: String| {
            said.push_str(". ");
            said.push_str(&text);
        };
        let Some(trouble) = self.latest.filter(|_| failure.kind != FailureKind::Host) else {
            return said;
        };
        // An unprovable commit says itself whose rows it is about.
        if failure.kind != FailureKind::Unprovable {
            say(self.rows(options.mode));
        }
        if trouble == Trouble::NotFound {
            let table = options.table.without_decorator();
            match fate(options, environment).await {
                Fate::Unknown => {}
                Fate::Missing => say(format!(
                    "Table {table} does not exist any more; it was dropped with all its rows"
                )),
                Fate::CreatedAt(at) if self.is_another(at) => say(format!(
                    "Table {table} was created anew at {}: rows that were written to the one before are lost with it, visible ones too",
                    format_rfc3339_seconds(at)
                )),
                Fate::CreatedAt(at) => say(format!(
                    "Table {table} is there since {}, this sink since {}",
                    format_rfc3339_seconds(at),
                    format_rfc3339_seconds(self.started_at)
                )),
            }
        }
        said
    }

    /// Whether a table that was created then is another one than the sink knew, or that of the checkpoint it was restored from.
    fn is_another(&self, created_at: SystemTime) -> bool {
        self.created_at.is_some_and(|known| known != created_at)
            || self.there_at.is_some_and(|there_at| there_at < created_at)
    }

    /// Which rows are visible, by checkpoints.
    pub(super) fn rows(&self, mode: WriteMode) -> String {
        if mode == WriteMode::AtLeastOnce {
            return match self.prepared {
                Some(prepared) => {
                    format!(
                        "Rows up to checkpoint {prepared} are visible; later ones may be, and are written again"
                    )
                }
                None => "Rows that came since the start may be visible; they are written again".to_owned(),
            };
        }
        let later = "rows after it are not visible and are read again";
        match (self.prepared, self.published) {
            (Some(prepared), published) if Some(prepared) > published => format!(
                "Checkpoint {prepared} is not published: if the host has completed it, its commit is repeated at the next start, which tells \
                 whether its rows become visible; {later}"
            ),
            (_, Some(published)) => format!("Checkpoint {published} was published; {later}"),
            _ => "Nothing that came since the start is visible; it is read again".to_owned(),
        }
    }
}

fn system_time(at: Micros) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(at.0)
}

async fn fate(options: &SinkOptions, environment: &Environment) -> Fate {
    let look = async {
        // The Storage Write API alone knows, as a rule; the other one is not asked for more than it must be.
        let schema = environment.transport.table_schema(&options.table).await;
        if schema.is_err_and(|error| error.code == GrpcCode::NotFound) {
            return Fate::Missing;
        }
        if !environment.asks_rest && !tables::administers(options) {
            return Fate::Unknown;
        }
        match tables::creation_time(options, environment.tokens.clone()).await {
            Ok(Some(at)) => Fate::CreatedAt(at),
            Ok(None) => Fate::Missing,
            Err(_) => Fate::Unknown,
        }
    };
    timeout(LOOK, look).await.unwrap_or(Fate::Unknown)
}
