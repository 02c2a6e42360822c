//! What the embedded host adds to the sink's metrics: where the engine runs a pipeline, the engine has numbers of its own.

use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, IntCounter, IntGauge};

use super::snapshot::Watched;
use crate::failure::Failure;

/// Families that are read from the run when they are asked for. docs/watching.md lists them.
#[derive(Debug)]
pub(super) struct HostMetrics {
    watched: Arc<Watched>,
    rows_read: IntGauge,
    rows_visible: IntGauge,
    last_confirmed_epoch: IntGauge,
    last_checkpoint_seconds: Gauge,
    last_checkpoint_timestamp_seconds: Gauge,
    checkpoints: IntCounter,
    restarts: IntCounter,
}

impl HostMetrics {
    /// Puts them beside the sink's, into the process's default registry.
    pub(super) fn register(watched: &Arc<Watched>) -> Result<(), Failure> {
        let metrics =
            Self::new(Arc::clone(watched)).and_then(|metrics| prometheus::register(Box::new(metrics)));
        metrics.map_err(|error| Failure::running(format!("--metrics: {error}")))
    }

    fn new(watched: Arc<Watched>) -> prometheus::Result<Self> {
        let name = |name: &str| format!("arroyo_worker_bigquery_host_{name}");
        Ok(Self {
            watched,
            rows_read: IntGauge::new(
                name("rows_read"),
                "Rows read by this run; falls back to the checkpoint after a restart",
            )?,
            rows_visible: IntGauge::new(
                name("rows_visible"),
                "Rows of checkpoints whose commit this run confirmed",
            )?,
            last_confirmed_epoch: IntGauge::new(
                name("last_confirmed_epoch"),
                "The newest checkpoint whose commit is confirmed",
            )?,
            last_checkpoint_seconds: Gauge::new(
                name("last_checkpoint_seconds"),
                "Time from the barrier of the newest confirmed checkpoint to its confirmation",
            )?,
            last_checkpoint_timestamp_seconds: Gauge::new(
                name("last_checkpoint_timestamp_seconds"),
                "When that checkpoint was confirmed, in seconds since 1970",
            )?,
            checkpoints: IntCounter::new(
                name("checkpoints_total"),
                "Checkpoints whose commit this run confirmed",
            )?,
            restarts: IntCounter::new(name("restarts_total"), "Attempts of this run that failed")?,
        })
    }

    fn families(&self) -> [&dyn Collector; 7] {
        [
            &self.rows_read,
            &self.rows_visible,
            &self.last_confirmed_epoch,
            &self.last_checkpoint_seconds,
            &self.last_checkpoint_timestamp_seconds,
            &self.checkpoints,
            &self.restarts,
        ]
    }
}

impl Collector for HostMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.families().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let progress = self.watched.progress();
        let history = self.watched.history.record();
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.rows_read.set(number(progress.rows_read));
        self.rows_visible.set(number(progress.rows_committed));
        self.last_confirmed_epoch.set(number(progress.epoch));
        let mut newest_first = history.checkpoints.iter().rev();
        let newest = newest_first.find_map(|checkpoint| Some((checkpoint, checkpoint.committed?)));
        if let Some((checkpoint, took)) = newest {
            let began = checkpoint.began_micros as f64 / 1e6;
            self.last_checkpoint_seconds.set(took.as_secs_f64());
            self.last_checkpoint_timestamp_seconds
                .set(began + took.as_secs_f64());
        }
        let up_to = |counter: &IntCounter, count: u64| counter.inc_by(count.saturating_sub(counter.get()));
        up_to(&self.checkpoints, history.confirmed);
        up_to(&self.restarts, u64::from(progress.restarts));
        self.families().into_iter().flat_map(Collector::collect).collect()
    }
}

#[cfg(test)]
mod tests {
    use bigquery_sink_pipeline::{Control, Progress};

    use super::*;
    use crate::watch::Described;

    const PAGE: &str = include_str!("../../../../docs/watching.md");

    #[test]
    fn the_documented_families_are_those_there_are_and_show_the_progress() {
        let control = Control::new();
        let watched = Watched::new(Described::default(), &control, Arc::default());
        let metrics = HostMetrics::new(Arc::new(watched)).unwrap();
        control.progress.send_replace(Progress {
            rows_read: 30,
            rows_committed: 20,
            epoch: 2,
            restarts: 1,
            rows_per_second: 5.0,
        });
        let documented = PAGE.lines().filter(|line| line.starts_with("| `arroyo_worker_"));
        let documented: Vec<String> = documented
            .map(|line| {
                let cells: Vec<_> = line.split(" | ").collect();
                format!(
                    "{} {}",
                    cells[0].trim_start_matches("| ").trim_matches('`'),
                    cells[1]
                )
            })
            .collect();
        let families = metrics.collect();
        let told = families.iter().map(|family| {
            let kind = format!("{:?}", family.get_field_type()).to_lowercase();
            format!("{} {kind}", family.name())
        });
        assert_eq!(told.collect::<Vec<_>>(), documented);
        let value = |name: &str| {
            let family = families
                .iter()
                .find(|family| family.name().ends_with(name))
                .unwrap();
            let metric = &family.get_metric()[0];
            metric.get_gauge().get_value() + metric.get_counter().get_value()
        };
        assert_eq!(
            [
                "rows_read",
                "rows_visible",
                "last_confirmed_epoch",
                "restarts_total"
            ]
            .map(value),
            [30.0, 20.0, 2.0, 1.0]
        );
        metrics.collect();
        assert_eq!(metrics.restarts.get(), 1, "asked twice");
    }
}
