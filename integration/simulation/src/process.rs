//! One process: the embedded host with the real sink, and every way out of it through its door.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_schema::SchemaRef;
use bigquery_sink::engine::{Declared, EngineSink, Form};
use bigquery_sink::options::SinkOptions;
use bigquery_sink::transport::Transport;
use bigquery_sink::{BigQuerySink, Environment, Metrics, Mutation, Probe, SinkError, SinkOperator, Task};
use bigquery_sink_pipeline::store::{StoreError, StoreLocation, TakeOver};
use bigquery_sink_pipeline::{Control, HostConfig, HostError, Pipeline, SinkFactory, Summary, run};
use tokio::time::sleep;

use crate::engine::Connector;
use crate::metrics;
use crate::point::{Point, StepKind};
use crate::scenario::{End, Incarnation, Scenario, Workload, WriteMode};
use crate::supervisor::Last;
use crate::world::Site;

/// Project, dataset, table.
pub(crate) const TABLE: (&str, &str, &str) = ("sim", "proof", "rows");

/// The table of dead letters, in the same dataset.
pub(crate) const REFUSED: &str = "refused";

/// A note that the table refuses, where rows may be bad.
pub(crate) const LONG_NOTE: &str = "a note too long for the table";

/// A place that BigQuery takes, and one that it refuses.
pub(crate) const GOOD_PLACE: &str = "POINT(0 0)";
pub(crate) const BAD_PLACE: &str = "nowhere";

/// What is wrong with a row of a workload with dead letters: the column.
pub(crate) fn fault_of(number: i64) -> Option<&'static str> {
    match number % 7 {
        // The sink finds out.
        3 => Some("note"),
        // BigQuery does.
        5 => Some("place"),
        _ => None,
    }
}

/// What is read and written: rows that carry their subtask and number, and values made of them.
pub(crate) fn pipeline(workload: &Workload) -> Arc<Pipeline> {
    // Parsed once: thousands of runs differ in everything else.
    type Shape = (u64, u64, WriteMode, bool, bool);
    static PARSED: Mutex<BTreeMap<Shape, Arc<Pipeline>>> = Mutex::new(BTreeMap::new());
    let mut parsed = PARSED.lock().unwrap_or_else(PoisonError::into_inner);
    let Workload {
        rows,
        rate,
        mode,
        dead_letters,
        protobuf,
        ..
    } = *workload;
    let found = parsed
        .entry((rows, rate, mode, dead_letters, protobuf))
        .or_insert_with(|| Arc::new(parse(workload)));
    Arc::clone(found)
}

fn parse(workload: &Workload) -> Pipeline {
    let Workload { rows, rate, mode, .. } = workload;
    let mode = mode.word();
    let format = if workload.protobuf { "proto" } else { "arrow" };
    let (options, note, place) = if workload.dead_letters {
        (
            format!(
                ", row_errors = 'dead_letter', \"dead_letter.table\" = '{REFUSED}', \"dead_letter.max_ratio\" = '1'"
            ),
            format!("WHEN counter % 7 = 3 THEN '{LONG_NOTE}'"),
            format!(", CASE WHEN counter % 7 = 5 THEN '{BAD_PLACE}' ELSE '{GOOD_PLACE}' END AS place"),
        )
    } else {
        <_>::default()
    };
    let (project, dataset, table) = TABLE;
    let sql = format!(
        "CREATE TABLE source WITH (connector = 'impulse', event_rate = '{rate}', message_count = '{rows}');
         CREATE TABLE rows WITH (
             connector = 'bigquery', project = '{project}', dataset = '{dataset}', \"table\" = '{table}',
             \"endpoint.grpc\" = 'http://127.0.0.1:1', \"endpoint.http\" = 'http://127.0.0.1:1',
             \"write.append.linger\" = '20ms', \"write.mode\" = '{mode}',
             \"write.format\" = '{format}'{options}
         );
         INSERT INTO rows SELECT
             subtask_index AS subtask, counter AS number,
             CASE {note} WHEN counter % 3 = 0 THEN NULL ELSE concat('row ', CAST(counter AS TEXT)) END AS note,
             CAST(counter AS DOUBLE) / 2 AS half,
             make_array(subtask_index, counter) AS pair{place}
         FROM source;"
    );
    Pipeline::parse(&sql, Path::new("simulation.sql"))
        .unwrap_or_else(|errors| panic!("the simulation's own pipeline is wrong: {errors}"))
}

/// A host about to run.
pub(crate) struct Process<'a> {
    pipeline: &'a Pipeline,
    config: HostConfig,
    sinks: Arc<Sinks>,
    control: Control,
    stop: Option<Duration>,
}

/// Makes the process's sinks.
pub(crate) struct Sinks {
    options: Arc<SinkOptions>,
    environment: Environment,
}

impl<'a> Process<'a> {
    pub(crate) fn new(
        site: &Arc<Site>,
        pipeline: &'a Pipeline,
        incarnation: &Incarnation,
        scenario: &Scenario,
    ) -> Self {
        Self {
            pipeline,
            config: config(site, incarnation, scenario),
            sinks: Arc::new(Sinks::new(site, pipeline, scenario.mutation)),
            control: Control::new(),
            stop: match incarnation.end {
                End::Stop { ms } => Some(Duration::from_millis(ms)),
                _ => None,
            },
        }
    }

    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        self.sinks.metrics()
    }

    /// Runs until it ends by itself. Dropping the future is the end of everything that the process does.
    pub(crate) async fn run(self) -> Last {
        let is_stopped = self.stop.is_some();
        match Box::pin(self.host()).await {
            Ok(summary) => {
                let said = format!(
                    "{} read, {} committed, {} checkpoints, {} restarts",
                    summary.rows_read, summary.rows_committed, summary.checkpoints, summary.restarts
                );
                if is_stopped {
                    Last::Stopped(said)
                } else {
                    Last::Finished(said)
                }
            }
            // It was told to stop, perhaps before it had begun.
            Err(error @ (HostError::Unconfirmed { .. } | HostError::StoppedUnread { .. })) if is_stopped => {
                Last::Stopped(error.to_string())
            }
            Err(error) => Last::Failed {
                superseded: matches!(error, HostError::Store(StoreError::Superseded { .. })),
                restart_may_help: error.restart_may_help(),
                error: error.to_string(),
            },
        }
    }

    async fn host(self) -> Result<Summary, HostError> {
        let shutdown = self.control.shutdown.clone();
        let running = run(self.pipeline, self.config, self.sinks, self.control);
        let Some(stop) = self.stop else {
            return running.await;
        };
        tokio::pin!(running);
        tokio::select! {
            biased;
            ended = &mut running => ended,
            () = sleep(stop) => {
                shutdown.cancel();
                running.await
            }
        }
    }
}

impl Sinks {
    pub(crate) fn new(site: &Arc<Site>, pipeline: &Pipeline, mutation: Mutation) -> Self {
        let options = options(pipeline);
        let environment = environment(site, &options, mutation);
        Self {
            options: Arc::new(options),
            environment,
        }
    }

    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.environment.metrics)
    }
}

impl Sinks {
    /// As [`SinkFactory::create`], through what the connector for Arroyo uses.
    pub(crate) fn connect(&self, pipeline: &Pipeline, task: Task, columns: SchemaRef) -> Connector {
        let forms = Form::split(given(pipeline));
        let (profile, table) = forms.expect("the simulation's own options are known");
        let sink = EngineSink::new(&profile, &table, Declared::default());
        Connector::new(sink.with_environment(self.environment.clone()), task, columns)
    }
}

impl SinkFactory for Sinks {
    fn create(&self, task: Task, columns: SchemaRef) -> Result<Box<dyn SinkOperator>, SinkError> {
        Ok(Box::new(BigQuerySink::new(
            Arc::clone(&self.options),
            columns,
            task,
            self.environment.clone(),
        )))
    }
}

fn given(pipeline: &Pipeline) -> Vec<(String, String)> {
    let options = pipeline.sink.options.iter();
    options
        .map(|option| (option.name.clone(), option.value.clone()))
        .collect()
}

fn options(pipeline: &Pipeline) -> SinkOptions {
    SinkOptions::parse(&given(pipeline))
        .unwrap_or_else(|problems| panic!("the simulation's own options are wrong: {problems:?}"))
}

fn environment(site: &Arc<Site>, options: &SinkOptions, mutation: Mutation) -> Environment {
    let from = Arc::clone(site);
    let connector = tower::service_fn(move |_: http::Uri| {
        let site = Arc::clone(&from);
        async move {
            site.door.pass().await;
            site.world.connect(&site)
        }
    });
    let endpoint = options.endpoints.grpc.clone();
    let transport = Transport::with_connector(endpoint, connector, None, None)
        .expect("a plaintext endpoint needs no certificate");
    let probed = Arc::clone(site);
    let metrics = Arc::<Metrics>::default();
    let told = Arc::clone(&metrics);
    Environment {
        transport,
        tokens: None,
        metrics,
        asks_rest: false,
        probe: Probe::new(move |subtask, moment| {
            metrics::look(&probed, &told, subtask.0, moment);
            probed.hit(Point::Command(moment), Some(subtask.0))
        }),
        mutation,
    }
}

fn config(site: &Arc<Site>, incarnation: &Incarnation, scenario: &Scenario) -> HostConfig {
    let state = StoreLocation::parse("simulated").expect("a folder's name is a location");
    let (clock, frozen) = (Arc::clone(site), Arc::clone(site));
    HostConfig {
        parallelism: incarnation.parallelism,
        checkpoint_interval: Duration::from_millis(scenario.workload.checkpoint_ms),
        store: Some(site.world.store(site).with_mutation(scenario.mutation)),
        mutation: scenario.mutation,
        take_over: TakeOver::Refuse,
        data: BTreeMap::new(),
        wall_clock: Arc::new(move || u64::try_from(clock.world.now_ms()).unwrap_or_default() * 1000),
        freeze: Some(Arc::new(move |step| {
            let (kind, subtask) = StepKind::of(step);
            frozen.hit(Point::Step(kind), subtask)
        })),
        ..HostConfig::new(state)
    }
}
