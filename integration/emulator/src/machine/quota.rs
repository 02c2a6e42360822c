//! Quotas (write-api.md 4): streams created an hour, open connections, bytes appended a second; each for a project in a
//! location.

use std::collections::BTreeMap;

use super::Machine;
use super::behaviour::Behaviour;
use super::connection::ConnectionId;
use super::refusal::{Code, Refusal};
use crate::catalog::{Millis, TableRef};

const HOUR_US: i64 = 3_600_000_000;
/// write-api.md 3.4: the short-term bucket refills within about ten seconds.
const CELL_US: i64 = 10_000_000;
/// And the long-term one within about ten minutes.
const REGION_US: i64 = 600_000_000;
/// write-api.md 4: connections in the multi-regions and elsewhere.
const CONNECTIONS: (usize, usize) = (20_000, 5_000);

/// What has been used lately.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    creates: BTreeMap<Home, Bucket>,
    bytes: BTreeMap<Home, Bucket>,
    long_term_bytes: BTreeMap<Home, Bucket>,
}

/// Whose quota: project and location.
type Home = (String, String);

/// A bucket that runs dry at a steady rate: until when what was poured in will take.
#[derive(Debug, Default)]
struct Bucket {
    dry_at_us: i64,
    /// It takes nothing until then.
    closed_until_us: i64,
}

impl Bucket {
    /// Pours in what takes `cost_us` to run out, unless more than `size_us` would stand in it then.
    fn pour(&mut self, now_us: i64, cost_us: i64, size_us: i64) -> bool {
        let dry_at_us = self.dry_at_us.max(now_us).saturating_add(cost_us);
        let fits = dry_at_us.saturating_sub(now_us) <= size_us;
        if fits {
            self.dry_at_us = dry_at_us;
        }
        fits
    }

    /// The same; once something does not fit, nothing does until the bucket has run dry.
    fn pour_or_close(&mut self, now_us: i64, cost_us: i64, size_us: i64) -> bool {
        let fits = now_us >= self.closed_until_us && self.pour(now_us, cost_us, size_us);
        if !fits {
            self.closed_until_us = self.closed_until_us.max(self.dry_at_us);
        }
        fits
    }
}

impl Machine {
    /// One more stream.
    pub(super) fn charge_create(&mut self, now: Millis, table: &TableRef) -> Result<(), Refusal> {
        let Some(an_hour) = self.switches.create_streams_per_hour.and_then(positive) else {
            return Ok(());
        };
        let home = self.home(table);
        let bucket = self.quotas.creates.entry(home).or_default();
        let fits = bucket.pour(micros(now), HOUR_US / an_hour, HOUR_US);
        self.enforce(fits, Behaviour::CreatesLimited, || {
            exceeded("CreateWriteStream requests", table)
        })
    }

    /// One more live stream of this table.
    pub(super) fn charge_live(&self, now: Millis, table: &TableRef, table_id: u64) -> Result<(), Refusal> {
        let Some(most) = self.switches.live_streams_per_table else {
            return Ok(());
        };
        let streams = self.state.streams().values();
        let live = streams.filter(|stream| {
            stream.table_id == table_id && !stream.finalized && !stream.expired(&self.switches, now)
        });
        self.enforce(live.count() < most, Behaviour::LiveStreamsLimited, || {
            exceeded("active streams", table)
        })
    }

    /// Another connection of this project in this location.
    pub(super) fn charge_connection(&self, id: ConnectionId, table: &TableRef) -> Result<(), Refusal> {
        let home = self.home(table);
        let multi_region =
            matches!(home.1.as_str(), "us" | "eu") && self.keeps(Behaviour::MultiRegionsTakeMoreConnections);
        let usual = if multi_region {
            CONNECTIONS.0
        } else {
            CONNECTIONS.1
        };
        let most = self.switches.connections_per_project.unwrap_or(usual);
        if self.connections.len() < most {
            return Ok(());
        }
        let anywhere = !self.keeps(Behaviour::ConnectionsCountedByLocation);
        let counts = |of: &TableRef| {
            let near = of.dataset == table.dataset || anywhere;
            of.project == table.project && (near || self.home(of) == home)
        };
        let others = self.connections.iter();
        let others = others.filter(|(other, of)| **other != id && of.table().is_some_and(counts));
        self.enforce(others.count() < most, Behaviour::ConnectionsLimited, || {
            exceeded("concurrent connections", table)
        })
    }

    /// More bytes: two buckets, each if it has a rate (write-api.md 3.4).
    pub(super) fn charge_bytes(&mut self, now: Millis, table: &TableRef, bytes: u64) -> Result<(), Refusal> {
        let refusal = || exceeded("AppendRows throughput", table).in_band(true);
        let rates = [
            self.switches.append_bytes_per_second,
            self.switches.long_term_append_bytes_per_second,
        ];
        let [short, long] = rates.map(|rate| rate.and_then(positive).map(|rate| time_for(bytes, rate)));
        if let Some(cost) = long {
            let home = self.home(table);
            let bucket = self.quotas.long_term_bytes.entry(home).or_default();
            let fits = bucket.pour_or_close(micros(now), cost, REGION_US);
            self.enforce(fits, Behaviour::LongTermThroughputLimited, refusal)?;
        }
        if let Some(cost) = short {
            let home = self.home(table);
            let bucket = self.quotas.bytes.entry(home).or_default();
            let fits = bucket.pour(micros(now), cost, CELL_US);
            self.enforce(fits, Behaviour::ThroughputLimited, refusal)?;
        }
        Ok(())
    }

    fn enforce(
        &self,
        fits: bool,
        behaviour: Behaviour,
        refusal: impl FnOnce() -> Refusal,
    ) -> Result<(), Refusal> {
        if fits || !self.keeps(behaviour) {
            Ok(())
        } else {
            Err(refusal())
        }
    }

    fn home(&self, table: &TableRef) -> Home {
        let dataset = self.catalog().dataset(&table.dataset_ref());
        let location = dataset.map(|dataset| dataset.location.to_lowercase());
        (table.project.clone(), location.unwrap_or_default())
    }
}

/// write-api.md 3.4: what is sure of the texts is their beginning and the status.
fn exceeded(what: &str, table: &TableRef) -> Refusal {
    let text = format!(
        "Exceeds '{what}' quota of project {} (status: INSUFFICIENT_TOKENS)",
        table.project
    );
    Refusal::new(Code::ResourceExhausted, text)
}

/// Microseconds in which so many bytes go at this rate.
fn time_for(bytes: u64, a_second: i64) -> i64 {
    let cost = i128::from(bytes) * 1_000_000 / i128::from(a_second);
    i64::try_from(cost).unwrap_or(i64::MAX)
}

fn positive(rate: u64) -> Option<i64> {
    i64::try_from(rate).ok().filter(|rate| *rate > 0)
}

fn micros(now: Millis) -> i64 {
    now.saturating_mul(1000)
}
