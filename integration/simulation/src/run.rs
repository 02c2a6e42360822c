//! Runs a scenario: one thread, one paused clock, real code between the doors.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Once};
use std::time::Duration;

use bigquery_sink_pipeline::Pipeline;
use bigquery_write_emulator::catalog::{DatasetRef, TableRef};
use bigquery_write_emulator::faults::{FaultAction, FaultRule};
use bigquery_write_emulator::machine::Switches;
use bigquery_write_emulator::schema::{Column, Kind, Mode, Schema};
use bigquery_write_emulator::{Config, Handle};
use bigquery_write_proto::rows::table_schema_for;
use tokio::time::{Instant, timeout};
use tokio_stream::wrappers::ReceiverStream;

use crate::at_least_once;
use crate::engine::Engine;
use crate::expect::{self, Outcome, Settling};
use crate::faults::{CameTrue, Faults};
use crate::metrics;
use crate::oracle;
use crate::point::Hit;
use crate::predicate::Predicate;
use crate::process::{REFUSED, TABLE, pipeline};
use crate::scenario::Scenario;
use crate::supervisor::{Host, Supervisor};
use crate::world::{BEGIN_MS, World};

/// P11: a run that takes longer does not converge. The longest budget of the sink (`quota.timeout`) is a quarter of an hour.
const LIMIT: Duration = Duration::from_secs(2 * 3600);

/// Whatever was closed is gone after so long.
const SETTLING: Duration = Duration::from_secs(30);

/// What a run showed.
#[derive(Clone, Debug)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// What must not be.
    pub violations: Vec<String>,
    /// Every point, by process.
    pub hits: Vec<Vec<Hit>>,
    /// What happened of what must happen sometimes.
    pub predicates: BTreeMap<Predicate, u64>,
    /// What went wrong, and what was to.
    pub faults: Faults,
    /// What came true that may end a run with an error: kinds and places.
    pub excuses: BTreeSet<String>,
    /// How long it took to its end from what went wrong last.
    pub settling: Settling,
    /// Everything seen from outside, a line each; the same for each run of one scenario.
    pub trace: String,
    /// How long it took by the simulated clock.
    pub simulated: Duration,
}

/// Runs it on this thread.
///
/// # Panics
/// If the scenario's own parts do not fit together: a mistake of this project.
#[must_use]
pub fn run(scenario: &Scenario) -> Report {
    watch_panics();
    PANICS.set(0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without drivers needs nothing of the system");
    let mut report = runtime.block_on(simulate(scenario));
    let panics = PANICS.get();
    if panics > 0 {
        report.violations.push(format!("{panics} panics"));
    }
    report
}

thread_local! {
    /// A host takes a panic in a task for a failure and restarts; here it is one of ours.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
    });
}

/// The emulator, with nothing in it.
fn emulator(scenario: &Scenario) -> Handle {
    let begin = Instant::now();
    let clock = Arc::new(move || BEGIN_MS + i64::try_from(begin.elapsed().as_millis()).unwrap_or(i64::MAX));
    let config = Config {
        clock: Some(clock),
        seed: Some(1),
        faults: scenario.faults.clone(),
        latency_ms: scenario.workload.latency_ms,
        switches: Switches {
            unlearned: scenario.unlearned.clone(),
            ..Switches::default()
        },
        ..Config::default()
    };
    Handle::new(&config).expect("the plan was checked when it was read")
}

async fn simulate(scenario: &Scenario) -> Report {
    let handle = emulator(scenario);
    let pipeline = pipeline(&scenario.workload);
    make_tables(&handle, &pipeline, scenario.workload.dead_letters);
    let (world, accepted) = World::new(handle.clone(), scenario);
    let server = {
        let handle = handle.clone();
        tokio::spawn(async move {
            handle
                .serve(ReceiverStream::new(accepted), std::future::pending())
                .await;
        })
    };
    let tasks = tasks_at_rest().await;
    let engine = Engine::of(scenario, &pipeline);
    let host = engine
        .clone()
        .map_or_else(|| Host::Embedded(&pipeline), Host::Engine);
    let mut supervisor = Supervisor::new(Arc::clone(&world), host, scenario);
    let outcome = timeout(LIMIT, supervisor.supervise()).await.unwrap_or_else(|_| {
        world.violation(format_args!("P11: not at its end after {} s", LIMIT.as_secs()));
        Outcome::Stuck
    });
    let simulated = world.elapsed();
    let ended_ms = world.passed_ms();
    let supervised = supervisor.supervised();
    let (starts_ms, ends_ms) = (world.starts_ms(), world.ends_ms());
    let (streams_left, counts) = supervisor.end().await;
    let streams_created = handle.streams_created();
    // What was put off is carried out now, and must change nothing any more.
    check_leaks(&world, tasks).await;
    let calls = handle.faults();
    let (connections, stores, hits) = (world.connection_faults(), world.store_faults(), world.hits());
    let came_true = CameTrue {
        calls: &calls,
        connections: &connections,
        store: &stores,
        hits: &hits,
        ends_ms: &ends_ms,
        starts_ms: &starts_ms,
    };
    let rows = look(&world, scenario, &outcome, engine.as_deref(), &came_true);
    // The embedded host always goes on from the newest checkpoint, and repeats its commit if that is not confirmed. The engine may not.
    let goes_on = engine.is_none() || counts.len() == 1;
    let recreated = |rule: &FaultRule| matches!(rule.action, FaultAction::RecreateTable {});
    let truth = metrics::Truth {
        rows: rows.of_table,
        dead_letters: rows.dead_letters,
        streams: streams_created,
        mode: scenario.workload.mode,
        is_whole: scenario.unlearned.is_empty() && !scenario.faults.rules.iter().any(recreated),
        is_complete: outcome == Outcome::Complete && goes_on,
        replayed: goes_on.then(|| world.replayed()),
        may_repeat: at_least_once::may_repeat(&came_true),
    };
    for violation in metrics::judge(&counts, &truth) {
        world.violation(violation);
    }
    let settling = expect::settling(&came_true, ended_ms);
    let checks = [
        expect::restarts(scenario, &came_true, supervised),
        expect::streams(scenario, &came_true, streams_created, streams_left),
        expect::in_time(&settling),
    ];
    for violation in checks.into_iter().filter_map(Result::err) {
        world.violation(violation);
    }
    if expect::came_late(&came_true, ended_ms) {
        world.saw(Predicate::CallCameLate);
    }
    let faults = Faults::of(scenario, &came_true);
    let excuses = expect::excuses(scenario, &came_true);
    server.abort();
    world.close();
    Report {
        outcome,
        violations: world.violations(),
        hits: world.hits(),
        predicates: world.predicates(),
        faults,
        excuses,
        settling,
        trace: world.trace(),
        simulated,
    }
}

/// How many rows are visible.
struct Visible {
    of_table: u64,
    dead_letters: u64,
}

/// Looks at both tables at the end: every row must be there as it must.
fn look(
    world: &World,
    scenario: &Scenario,
    outcome: &Outcome,
    engine: Option<&Engine>,
    came_true: &CameTrue<'_>,
) -> Visible {
    let rows = world.handle.rows(&table()).expect("the table was made");
    let letters = scenario.workload.dead_letters.then(|| {
        let letters = TableRef::new(TABLE.0, TABLE.1, REFUSED);
        world.handle.rows(&letters).expect("the table was made")
    });
    let checkpoints = world.checkpoints();
    match expect::expected(scenario, outcome, &checkpoints, engine, came_true) {
        Err(violation) => world.violation(violation),
        Ok(expected) => {
            let expected = at_least_once::expected(expected, scenario, came_true);
            let (rows, published) = ((&rows, letters.as_ref()), world.published());
            for violation in oracle::judge(rows, &published, &checkpoints, &expected) {
                world.violation(violation);
            }
        }
    }
    Visible {
        of_table: rows.num_rows() as u64,
        dead_letters: letters.map_or(0, |letters| letters.num_rows() as u64),
    }
}

fn table() -> TableRef {
    let (project, dataset, table) = TABLE;
    TableRef::new(project, dataset, table)
}

fn make_tables(handle: &Handle, pipeline: &Pipeline, dead_letters: bool) {
    let (project, dataset, _) = TABLE;
    handle
        .create_dataset(&DatasetRef::new(project, dataset), "")
        .expect("the emulator is empty");
    let schema = table_schema_for(&pipeline.sink.columns).expect("the query's columns fit BigQuery");
    let mut schema = Schema::from_wire(&schema).expect("the schema is whole");
    if dead_letters {
        schema.columns[2].kind = Kind::String { max_length: Some(12) };
        schema.columns[5].kind = Kind::Geography;
        let text = || Kind::String { max_length: None };
        let columns = [
            ("row", Kind::Json),
            ("reason", text()),
            ("column", text()),
            ("epoch", Kind::Int64),
            ("subtask", Kind::Int64),
            ("rejected_at", Kind::Timestamp),
            ("table", text()),
        ];
        let columns = columns.map(|(name, kind)| Column::new(name, kind, Mode::Nullable));
        let refused = TableRef::new(project, dataset, REFUSED);
        handle
            .create_table(
                &refused,
                Schema {
                    columns: columns.to_vec(),
                },
            )
            .expect("the dataset is empty");
    }
    handle
        .create_table(&table(), schema)
        .expect("the dataset is empty");
}

/// Lets every task have its turn; gives how many there are then.
pub(crate) async fn tasks_at_rest() -> usize {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// P12: nobody runs any more, and nothing of anybody is left.
async fn check_leaks(world: &World, tasks: usize) {
    // What a fault holds back or puts off is the fault's, not a leak.
    world.handle.release();
    world.let_go();
    tokio::time::sleep(SETTLING).await;
    let left = tasks_at_rest().await;
    let (calls, connections) = (world.handle.connections(), world.handle.transports());
    if (left, calls, connections) != (tasks, 0, 0) {
        world.violation(format_args!(
            "P12: {left} tasks are left of {tasks}, {calls} calls and {connections} connections are open"
        ));
    }
    if world.has_late_rows_unseen() {
        world.saw(Predicate::ZombieRowsInvisible);
    }
}
