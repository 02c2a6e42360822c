//! Starts the scenario's processes one after the other, and buries the dead.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bigquery_sink::Metrics;
use bigquery_sink::metrics::{Counter, Discarded, RejectedBy};
use bigquery_sink_pipeline::Pipeline;
use futures::future::LocalBoxFuture;
use tokio::time::{sleep, timeout};

use crate::engine::{self, Engine};
use crate::expect::Outcome;
use crate::metrics::Counts;
use crate::point::{EngineStep, Point, StepKind};
use crate::predicate::Predicate;
use crate::process::Process;
use crate::run::tasks_at_rest;
use crate::scenario::{End, Incarnation, Scenario};
use crate::world::{Site, World};

/// A process is there again after so long.
const RESTART: Duration = Duration::from_millis(250);

/// So often a process that ended with an error is started again.
const SUPERVISED: usize = 5;

/// Zombies get so long to end, once the newest process has.
const LAST_WORDS: Duration = Duration::from_secs(1800);

/// Who runs, and who ran.
pub(crate) struct Supervisor<'a> {
    world: Arc<World>,
    host: Host<'a>,
    scenario: &'a Scenario,
    started: Vec<Started>,
    /// Those alive, by their number; zombies too.
    alive: Vec<(usize, LocalBoxFuture<'a, Last>)>,
    /// How often a process ended with an error that a restart may mend, and another was started.
    supervised: usize,
}

/// What drives the sink in every process.
#[derive(Clone)]
pub(crate) enum Host<'a> {
    /// The embedded host.
    Embedded(&'a Pipeline),
    /// The engine's script.
    Engine(Arc<Engine>),
}

/// How a process ended by itself.
#[derive(Clone, Debug)]
pub(crate) enum Last {
    /// Everything is read and published.
    Finished(String),
    /// It was to stop here; the next goes on.
    Stopped(String),
    /// With an error.
    Failed {
        error: String,
        restart_may_help: bool,
        /// It found that the state is not its own any more.
        superseded: bool,
    },
}

struct Started {
    site: Arc<Site>,
    metrics: Arc<Metrics>,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(world: Arc<World>, host: Host<'a>, scenario: &'a Scenario) -> Self {
        Self {
            world,
            host,
            scenario,
            started: Vec::new(),
            alive: Vec::new(),
            supervised: 0,
        }
    }

    /// Until a process ends by itself, everything being read and published, or with an error that no restart mends.
    pub(crate) async fn supervise(&mut self) -> Outcome {
        let scenario = self.scenario;
        let mut planned = scenario.incarnations.iter();
        let mut next = Incarnation::new(1);
        let mut died = false;
        loop {
            match planned.next() {
                Some(incarnation) => next = incarnation.clone(),
                None => next.end = End::Natural,
            }
            self.start(&next);
            match self.until_over().await {
                None => {
                    let dies = self.is_newest_dead();
                    if died && dies && self.was_recovering() {
                        self.world.saw(Predicate::RecoveryCrashed);
                    }
                    died = dies;
                }
                Some(Last::Stopped(_)) => died = false,
                Some(Last::Finished(_)) => return Outcome::Complete,
                // A zombie that had not taken the state before is now the newest host.
                Some(Last::Failed { superseded: true, .. }) => {
                    if let Some(outcome) = self.until_zombies_end().await {
                        return outcome;
                    }
                }
                Some(Last::Failed {
                    error,
                    restart_may_help,
                    ..
                }) => {
                    if !restart_may_help || self.supervised == SUPERVISED {
                        return Outcome::Failed { error };
                    }
                    self.supervised += 1;
                    died = false;
                }
            }
            sleep(RESTART).await;
        }
    }

    fn is_newest_dead(&self) -> bool {
        let newest = self.started.last();
        newest.is_some_and(|newest| newest.site.door.is_dead())
    }

    /// The newest process had read what the one before it left, and had no checkpoint of its own.
    fn was_recovering(&self) -> bool {
        let hits = self.world.hits();
        let came_by = |wanted: [Point; 2]| {
            let newest = hits.last().into_iter().flatten();
            newest.map(|hit| hit.point).any(|point| wanted.contains(&point))
        };
        came_by([
            Point::Step(StepKind::Restored),
            Point::Engine(EngineStep::Restored),
        ]) && !came_by([
            Point::Step(StepKind::Completed),
            Point::Engine(EngineStep::Completed),
        ])
    }

    /// How often a process that ended with an error was started again.
    pub(crate) fn supervised(&self) -> usize {
        self.supervised
    }

    /// Until one of those that are left has ended well; `None` if none has.
    async fn until_zombies_end(&mut self) -> Option<Outcome> {
        while let Some((_, ended)) = self.next_end().await {
            match ended {
                Last::Finished(_) => return Some(Outcome::Complete),
                Last::Failed {
                    error,
                    restart_may_help: false,
                    superseded: false,
                } => return Some(Outcome::Failed { error }),
                Last::Stopped(_) | Last::Failed { .. } => {}
            }
        }
        None
    }

    /// Lets zombies end, drops whoever is left; gives how many streams all of them left, and what each process counted.
    pub(crate) async fn end(mut self) -> (u64, Vec<Counts>) {
        let all = async { while self.next_end().await.is_some() {} };
        // One that waits for ever, behind a door or in a fault, is dropped.
        timeout(LAST_WORDS, all).await.ok();
        for (index, process) in std::mem::take(&mut self.alive) {
            let site = &self.started[index].site;
            site.door.kill(true);
            drop(process);
            site.bury();
        }
        // What a task that was dropped holds is gone with its turn.
        tasks_at_rest().await;
        for started in &self.started {
            self.count(&started.metrics);
        }
        let left = self
            .started
            .iter()
            .map(|started| streams_left(&started.metrics))
            .sum();
        let counts = self.started.iter();
        (left, counts.map(|started| Counts::of(&started.metrics)).collect())
    }

    fn start(&mut self, incarnation: &Incarnation) {
        let parallelism = incarnation.parallelism;
        let site = self.world.site(incarnation);
        site.note(format_args!("starts with {parallelism} subtasks"));
        let (metrics, life): (_, LocalBoxFuture<'a, Last>) = match &self.host {
            Host::Embedded(pipeline) => {
                let process = Process::new(&site, pipeline, incarnation, self.scenario);
                (process.metrics(), Box::pin(process.run()))
            }
            Host::Engine(engine) => {
                let process = engine::Process::new(&site, engine, incarnation, self.scenario.mutation);
                (process.metrics(), Box::pin(process.run()))
            }
        };
        self.alive.push((site.index, life));
        self.started.push(Started { site, metrics });
    }

    /// Until the newest process ends, is killed, or is cut off; `None` for the latter two.
    async fn until_over(&mut self) -> Option<Last> {
        let newest = self.started.len() - 1;
        let site = Arc::clone(&self.started[newest].site);
        loop {
            tokio::select! {
                biased;
                () = site.door.closed() => {
                    if site.door.is_dead() {
                        self.alive.retain(|(index, _)| *index != newest);
                        site.bury();
                    }
                    return None;
                }
                ended = self.next_end() => match ended {
                    Some((index, ended)) if index == newest => return Some(ended),
                    Some(_) => {}
                    None => return None,
                },
            }
        }
    }

    /// The next process to end by itself; `None` if none is alive.
    async fn next_end(&mut self) -> Option<(usize, Last)> {
        let newest = self.started.len() - 1;
        let ended = poll_fn(|context| {
            let mut at = 0;
            while at < self.alive.len() {
                let (index, process) = &mut self.alive[at];
                let index = *index;
                if let Poll::Ready(ended) = process.as_mut().poll(context) {
                    drop(self.alive.remove(at));
                    return Poll::Ready(Some((index, ended)));
                }
                let site = &self.started[index].site;
                if index != newest && site.door.is_dead() {
                    // A zombie was killed; of the newest process it is heard elsewhere.
                    drop(self.alive.remove(at));
                    site.bury();
                } else {
                    at += 1;
                }
            }
            if self.alive.is_empty() {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        })
        .await;
        if let Some((index, ended)) = &ended {
            self.note_end(*index, ended);
        }
        ended
    }

    fn note_end(&self, index: usize, ended: &Last) {
        let site = &self.started[index].site;
        site.has_ended();
        match ended {
            Last::Finished(said) | Last::Stopped(said) => site.note(format_args!("ends: {said}")),
            Last::Failed {
                error, superseded, ..
            } => {
                site.note(format_args!("ends with an error: {error}"));
                if *superseded && index + 1 < self.started.len() {
                    self.world.saw(Predicate::ZombieSuperseded);
                }
            }
        }
    }

    fn count(&self, metrics: &Metrics) {
        let counted = [
            (
                metrics.total(Counter::OwnResendsStored),
                Predicate::OwnResendStored,
            ),
            (streams_left(metrics), Predicate::StreamLeft),
            // Without dead letters the job ends instead.
            (
                metrics
                    .total(Counter::RowsRejected(RejectedBy::BigQuery))
                    .min(u64::from(self.scenario.workload.dead_letters)),
                Predicate::RowsMovedUp,
            ),
            (
                metrics.total(Counter::StaleAnswersDropped),
                Predicate::AnswersGivenUp,
            ),
            (metrics.total(Counter::EchoesDiscarded), Predicate::EchoDiscarded),
        ];
        for (count, predicate) in counted {
            if count > 0 {
                self.world.saw(predicate);
            }
        }
    }
}

/// Streams that were left before their process ended.
fn streams_left(metrics: &Metrics) -> u64 {
    metrics.sum(|counter| matches!(counter, Counter::StreamsDiscarded(reason) if reason != Discarded::Ended))
}
