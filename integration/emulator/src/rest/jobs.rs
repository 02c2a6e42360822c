//! Jobs with their results, until newer ones push them out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::catalog::{Entity, Millis, TableRef};
use crate::query::{Answer, QueryError, QueryOutput};
use crate::rest::error::ApiError;
use crate::rest::fields::write_schema;
use crate::shared::Shared;

/// Jobs that are kept.
const MOST_JOBS: usize = 1000;
/// Bytes of results that are kept; the newest job's stay whatever their size.
const MOST_BYTES: usize = 512 << 20;

/// How long a call with the same `requestId` is the same call; BigQuery's own 15 minutes.
const SAME_REQUEST_MS: Millis = 15 * 60_000;

/// Every job of this emulator, oldest first. Those that run end with it.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    kept: Mutex<Kept>,
    running: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct Kept {
    jobs: VecDeque<Arc<Job>>,
    /// How many there ever were.
    ever: u64,
    bytes: usize,
}

/// A query that runs or ran.
#[derive(Debug)]
pub(super) struct Job {
    /// Project that it runs in.
    pub(super) project: String,
    /// Its id, from the caller or drawn.
    pub(super) id: String,
    /// Where it runs.
    pub(super) location: String,
    /// Its `configuration` as it came.
    pub(super) configuration: Value,
    /// `requestId` of the call that started it.
    pub(super) request_id: Option<String>,
    /// When it began.
    pub(super) started_ms: Millis,
    /// How many there were before it.
    pub(super) number: u64,
    done: watch::Sender<Option<Arc<Done>>>,
    cancel: Notify,
}

/// How a job ended.
#[derive(Debug)]
pub(super) struct Done {
    /// When.
    pub(super) ended_ms: Millis,
    /// Its result.
    pub(super) outcome: Result<Answer, ApiError>,
}

impl Jobs {
    /// Runs a job; or, if it is one that has been asked for already, returns that.
    ///
    /// # Errors
    /// 409 `duplicate`: its id is taken.
    pub(super) fn start(
        self: &Arc<Self>,
        job: Job,
        shared: &Shared,
        run: impl Future<Output = Result<Answer, QueryError>> + Send + 'static,
    ) -> Result<Arc<Job>, ApiError> {
        let (job, is_new) = self.add(job)?;
        if !is_new {
            return Ok(job);
        }
        let (jobs, shared, started) = (Arc::downgrade(self), shared.clone(), Arc::clone(&job));
        let mut running = self.running();
        while running.try_join_next().is_some() {}
        running.spawn(async move {
            let outcome = tokio::select! {
                biased;
                () = started.cancel.notified() => Err(cancelled()),
                outcome = run => outcome.map_err(ApiError::from),
            };
            let ended_ms = shared.now();
            if let Some(jobs) = jobs.upgrade() {
                jobs.finish(&started, Done { ended_ms, outcome });
            }
        });
        Ok(job)
    }

    /// Ends every job that runs, without an answer.
    pub(super) fn stop(&self) {
        self.running().abort_all();
    }

    /// Keeps a job that is to be started. Of two calls with one `requestId` only the first makes a job, even if they
    /// come at the same time; the flag says whether this one did.
    ///
    /// # Errors
    /// 409 `duplicate`.
    pub(super) fn add(&self, job: Job) -> Result<(Arc<Job>, bool), ApiError> {
        self.with(|kept| {
            if let Some(first) = kept.jobs.iter().rev().find(|other| job.repeats(other)) {
                return Ok((Arc::clone(first), false));
            }
            if kept.jobs.iter().any(|other| other.is(&job.project, &job.id)) {
                let text = format!("Already Exists: Job {}", job.full_id());
                return Err(ApiError::new(409, "duplicate", text));
            }
            let job = Arc::new(Job {
                number: kept.ever,
                ..job
            });
            kept.ever += 1;
            kept.jobs.push_back(Arc::clone(&job));
            Ok((job, true))
        })
    }

    /// Ends a job, and drops the oldest ones that have ended beyond the limits.
    pub(super) fn finish(&self, job: &Arc<Job>, done: Done) {
        job.done.send_replace(Some(Arc::new(done)));
        self.with(|kept| {
            kept.bytes += job.bytes();
            while kept.jobs.len() > MOST_JOBS || kept.bytes > MOST_BYTES {
                let mut others = kept.jobs.iter();
                let oldest = others.position(|other| !Arc::ptr_eq(other, job) && other.done().is_some());
                let Some(oldest) = oldest.and_then(|i| kept.jobs.remove(i)) else {
                    return;
                };
                kept.bytes -= oldest.bytes();
            }
        });
    }

    /// Forgets a job that has ended.
    ///
    /// # Errors
    /// 404 `notFound`; 400 `invalid`: it still runs.
    pub(super) fn delete(&self, project: &str, id: &str) -> Result<(), ApiError> {
        let job = self.get(project, id)?;
        if job.done().is_none() {
            let text = format!("Cannot delete job {}: it is not done", job.full_id());
            return Err(ApiError::invalid(text));
        }
        self.with(|kept| {
            let before = kept.jobs.len();
            kept.jobs.retain(|other| !Arc::ptr_eq(other, &job));
            if kept.jobs.len() < before {
                kept.bytes -= job.bytes();
            }
        });
        Ok(())
    }

    /// The job.
    ///
    /// # Errors
    /// 404 `notFound`.
    pub(super) fn get(&self, project: &str, id: &str) -> Result<Arc<Job>, ApiError> {
        let job = self.find(|job| job.is(project, id));
        job.ok_or_else(|| ApiError::not_found(format!("Job {project}:{id}")))
    }

    /// A project's jobs, newest first.
    pub(super) fn of(&self, project: &str) -> Vec<Arc<Job>> {
        self.with(|kept| {
            let jobs = kept.jobs.iter().rev();
            jobs.filter(|job| job.project == project)
                .map(Arc::clone)
                .collect()
        })
    }

    fn find(&self, is: impl Fn(&Job) -> bool) -> Option<Arc<Job>> {
        // The newest are asked for most.
        self.with(|kept| kept.jobs.iter().rev().find(|job| is(job)).map(Arc::clone))
    }

    fn running(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Kept) -> T) -> T {
        act(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Job {
    /// A job that runs.
    pub(super) fn new(
        project: String,
        id: String,
        location: String,
        configuration: Value,
        started_ms: Millis,
    ) -> Self {
        Self {
            project,
            id,
            location,
            configuration,
            request_id: None,
            started_ms,
            number: 0,
            done: watch::Sender::new(None),
            cancel: Notify::new(),
        }
    }

    /// How it ended, if it has.
    pub(super) fn done(&self) -> Option<Arc<Done>> {
        self.done.borrow().clone()
    }

    /// Waits for its end; `None` if that takes too long.
    pub(super) async fn wait(&self, limit: Duration) -> Option<Arc<Done>> {
        let mut done = self.done.subscribe();
        let ended = timeout(limit, done.wait_for(Option::is_some)).await;
        // An error of the channel means that the job is gone, which cannot be as long as it is borrowed.
        ended.ok()?.ok()?.clone()
    }

    /// Ends it, unless it has ended.
    pub(super) fn cancel(&self) {
        self.cancel.notify_one();
    }

    /// PENDING never lasts here.
    pub(super) fn state(&self) -> &'static str {
        match self.done() {
            Some(_) => "DONE",
            None => "RUNNING",
        }
    }

    /// The job resource.
    pub(super) fn resource(&self) -> Value {
        let (project, id) = (&self.project, &self.id);
        let mut json = self.summary();
        json["etag"] = "job".into();
        let link = format!("https://bigquery.googleapis.com/bigquery/v2/projects/{project}/jobs/{id}");
        json["selfLink"] = link.into();
        json["configuration"] = self.configuration.clone();
        if let Value::Object(json) = &mut json {
            json.remove("state");
            json.remove("errorResult");
        }
        json
    }

    /// The entry of a list.
    pub(super) fn summary(&self) -> Value {
        let done = self.done();
        let error = done.as_ref().and_then(|done| done.outcome.as_ref().err());
        let mut status = json!({ "state": self.state() });
        if let Some(error) = error {
            status["errorResult"] = error.proto();
            status["errors"] = json!([error.proto()]);
        }
        let mut json = json!({
            "kind": "bigquery#job",
            "id": self.full_id(),
            "user_email": "emulator@localhost",
            "jobReference": self.reference(),
            "state": self.state(),
            "status": status,
            "statistics": self.statistics(done.as_deref()),
        });
        if let Some(error) = error {
            json["errorResult"] = error.proto();
        }
        json
    }

    fn statistics(&self, done: Option<&Done>) -> Value {
        let mut json = json!({
            "creationTime": self.started_ms.to_string(),
            "startTime": self.started_ms.to_string(),
        });
        let Some(done) = done else {
            return json;
        };
        json["endTime"] = done.ended_ms.to_string().into();
        json["totalBytesProcessed"] = "0".into();
        json["query"] = match &done.outcome {
            Ok(answer) => query_statistics(answer),
            Err(_) => json!({}),
        };
        for (name, value) in [
            ("totalBytesProcessed", json!("0")),
            ("totalBytesBilled", json!("0")),
            ("cacheHit", json!(false)),
        ] {
            json["query"][name] = value;
        }
        json
    }

    pub(super) fn reference(&self) -> Value {
        json!({ "projectId": self.project, "jobId": self.id, "location": self.location })
    }

    fn full_id(&self) -> String {
        format!("{}:{}.{}", self.project, self.location, self.id)
    }

    /// Whether it is asked for by a call that comes again: the same `requestId`, and the same query.
    fn repeats(&self, first: &Self) -> bool {
        self.request_id.is_some()
            && self.request_id == first.request_id
            && self.project == first.project
            && self.configuration == first.configuration
            && self.started_ms.saturating_sub(first.started_ms) <= SAME_REQUEST_MS
    }

    fn is(&self, project: &str, id: &str) -> bool {
        self.id == id && self.project == project
    }

    fn bytes(&self) -> usize {
        let done = self.done();
        let answer = done.as_ref().and_then(|done| done.outcome.as_ref().ok());
        let output = answer.and_then(|answer| answer.output.as_ref());
        output.map_or(0, |output: &QueryOutput| output.rows.get_array_memory_size())
    }
}

/// What a statement did, in `statistics.query`.
pub(super) fn query_statistics(answer: &Answer) -> Value {
    let mut json = json!({ "statementType": answer.statement });
    if let Some(ddl) = &answer.ddl {
        json["ddlOperationPerformed"] = ddl.operation.into();
        match &ddl.target {
            Entity::Table(table) => json["ddlTargetTable"] = table_reference(table),
            Entity::Dataset(dataset) => {
                json["ddlTargetDataset"] =
                    json!({ "projectId": dataset.project, "datasetId": dataset.dataset });
            }
        }
    }
    if let Some(dml) = answer.dml {
        json["numDmlAffectedRows"] = (dml.inserted + dml.deleted).to_string().into();
        json["dmlStats"] = match answer.statement {
            "INSERT" => json!({ "insertedRowCount": dml.inserted.to_string() }),
            _ => json!({ "deletedRowCount": dml.deleted.to_string() }),
        };
    }
    json
}

/// With the columns that a dry run found.
pub(super) fn dry_run_statistics(answer: &Answer) -> Value {
    let mut json = query_statistics(answer);
    if let Some(output) = &answer.output {
        json["schema"] = write_schema(&output.schema);
    }
    json
}

pub(super) fn table_reference(name: &TableRef) -> Value {
    json!({ "projectId": name.project, "datasetId": name.dataset, "tableId": name.table })
}

fn cancelled() -> ApiError {
    let text = "Job execution was cancelled: User requested cancellation";
    ApiError::new(400, "stopped", text)
}
