//! Limits of the host's own steps on the store: none waits for ever, and a stop ends those that come before the first row.

use std::future::Future;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::HostError;

/// How long a step may still take once a stop was asked for; a healthy store needs a fraction of it.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// What ends a step early.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) stall: Duration,
    pub(super) shutdown: CancellationToken,
    /// The store, as shown.
    pub(super) state: String,
}

impl Limits {
    /// A step that a stop has to wait for, since rows depend on it.
    pub(super) async fn within<T, E: Into<HostError>>(
        &self,
        phase: &'static str,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, HostError> {
        match timeout(self.stall, step).await {
            Ok(ended) => ended.map_err(Into::into),
            Err(_) => Err(HostError::Stalled {
                phase,
                seconds: self.stall.as_secs(),
            }),
        }
    }

    /// A step before anything was started.
    pub(super) async fn until_stopped<T, E: Into<HostError>>(
        &self,
        phase: &'static str,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, HostError> {
        let stopped = async {
            self.shutdown.cancelled().await;
            sleep(STOP_GRACE).await;
        };
        tokio::select! {
            biased;
            ended = self.within(phase, step) => ended,
            () = stopped => Err(HostError::StoppedUnread { state: self.state.clone() }),
        }
    }
}
