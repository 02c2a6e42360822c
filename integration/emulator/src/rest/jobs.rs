//! Jobs that ran, with their results, until newer ones push them out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::catalog::Millis;
use crate::query::QueryOutput;
use crate::rest::error::ApiError;

/// Jobs that are kept.
const MOST_JOBS: usize = 1000;
/// Bytes of results that are kept; the newest job's stay whatever their size.
const MOST_BYTES: usize = 512 << 20;

/// Every job of this emulator, oldest first.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    jobs: VecDeque<Arc<Job>>,
    bytes: usize,
}

/// A query that ran.
#[derive(Debug)]
pub(super) struct Job {
    /// Project that it ran in.
    pub(super) project: String,
    /// Its id, from the caller or drawn.
    pub(super) id: String,
    /// Where it ran.
    pub(super) location: String,
    /// Its `configuration` as it came.
    pub(super) configuration: Value,
    /// When it began.
    pub(super) started_ms: Millis,
    /// When it was done.
    pub(super) ended_ms: Millis,
    /// Its result.
    pub(super) outcome: Result<QueryOutput, ApiError>,
}

impl Jobs {
    /// Refuses an id that is taken.
    ///
    /// # Errors
    /// 409 `duplicate`.
    pub(super) fn check_new(&self, project: &str, id: &str) -> Result<(), ApiError> {
        match self.find(project, id) {
            None => Ok(()),
            Some(job) => {
                let text = format!("Already Exists: Job {}", job.full_id());
                Err(ApiError::new(409, "duplicate", text))
            }
        }
    }

    /// Keeps a job, and drops the oldest ones beyond the limits.
    ///
    /// # Errors
    /// 409 `duplicate`: another one with this id came first.
    pub(super) fn add(&self, job: Job) -> Result<Arc<Job>, ApiError> {
        let job = Arc::new(job);
        self.with(|kept| {
            if kept.jobs.iter().any(|other| other.is(&job.project, &job.id)) {
                let text = format!("Already Exists: Job {}", job.full_id());
                return Err(ApiError::new(409, "duplicate", text));
            }
            kept.bytes += job.bytes();
            kept.jobs.push_back(Arc::clone(&job));
            while kept.jobs.len() > 1 && (kept.jobs.len() > MOST_JOBS || kept.bytes > MOST_BYTES) {
                if let Some(oldest) = kept.jobs.pop_front() {
                    kept.bytes -= oldest.bytes();
                }
            }
            Ok(job)
        })
    }

    /// The job.
    ///
    /// # Errors
    /// 404 `notFound`.
    pub(super) fn get(&self, project: &str, id: &str) -> Result<Arc<Job>, ApiError> {
        let job = self.find(project, id);
        job.ok_or_else(|| ApiError::not_found(format!("Job {project}:{id}")))
    }

    fn find(&self, project: &str, id: &str) -> Option<Arc<Job>> {
        // The newest are asked for most.
        self.with(|kept| {
            kept.jobs
                .iter()
                .rev()
                .find(|job| job.is(project, id))
                .map(Arc::clone)
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Kept) -> T) -> T {
        act(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Job {
    /// The job resource.
    pub(super) fn resource(&self) -> Value {
        let (project, id) = (&self.project, &self.id);
        let mut status = json!({ "state": "DONE" });
        if let Err(error) = &self.outcome {
            status["errorResult"] = error.proto();
            status["errors"] = json!([error.proto()]);
        }
        json!({
            "kind": "bigquery#job",
            "etag": "job",
            "id": self.full_id(),
            "selfLink": format!("https://bigquery.googleapis.com/bigquery/v2/projects/{project}/jobs/{id}"),
            "user_email": "emulator@localhost",
            "jobReference": self.reference(),
            "configuration": self.configuration,
            "status": status,
            "statistics": {
                "creationTime": self.started_ms.to_string(),
                "startTime": self.started_ms.to_string(),
                "endTime": self.ended_ms.to_string(),
                "totalBytesProcessed": "0",
                "query": {
                    "statementType": "SELECT",
                    "totalBytesProcessed": "0",
                    "totalBytesBilled": "0",
                    "cacheHit": false,
                },
            },
        })
    }

    pub(super) fn reference(&self) -> Value {
        json!({ "projectId": self.project, "jobId": self.id, "location": self.location })
    }

    fn full_id(&self) -> String {
        format!("{}:{}.{}", self.project, self.location, self.id)
    }

    fn is(&self, project: &str, id: &str) -> bool {
        self.id == id && self.project == project
    }

    fn bytes(&self) -> usize {
        self.outcome
            .as_ref()
            .map_or(0, |output| output.rows.get_array_memory_size())
    }
}
