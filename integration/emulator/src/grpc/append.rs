//! One `AppendRows` call: its requests to the machine, the machine's outputs back in order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bigquery_write_proto::wire::{AppendRowsRequest, AppendRowsResponse};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{Service, status};
use crate::catalog::Millis;
use crate::machine::{ConnectionId, Event, Output, Refusal};

/// Answers held for a client that does not read them.
const ANSWERS: usize = 1024;

/// How a call is told from elsewhere that it is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Doors(Arc<Mutex<HashMap<ConnectionId, oneshot::Sender<Option<Refusal>>>>>);

/// An answer and when it may go.
struct Held {
    due: Option<Instant>,
    answer: Result<AppendRowsResponse, Status>,
}

struct Conversation {
    service: Service,
    id: ConnectionId,
    answers: mpsc::Sender<Held>,
    over: oneshot::Receiver<Option<Refusal>>,
}

/// Carries on the call that the machine has opened as `id`.
pub(super) fn answers(
    service: &Service,
    id: ConnectionId,
    requests: Streaming<AppendRowsRequest>,
) -> BoxStream<'static, Result<AppendRowsResponse, Status>> {
    let (answers, held) = mpsc::channel(ANSWERS);
    let over = service.doors.open(id);
    let conversation = Conversation {
        service: service.clone(),
        id,
        answers,
        over,
    };
    tokio::spawn(conversation.run(requests));
    let answers = ReceiverStream::new(held).then(|Held { due, answer }| async move {
        if let Some(due) = due {
            tokio::time::sleep_until(due).await;
        }
        answer
    });
    answers.boxed()
}

impl Conversation {
    async fn run(mut self, mut requests: Streaming<AppendRowsRequest>) {
        let shared = self.service.shared.clone();
        loop {
            let idle = shared
                .with(|machine| machine.idle_deadline(self.id))
                .unwrap_or(Millis::MAX);
            let wait = u64::try_from(idle.saturating_sub(shared.now()))
                .unwrap_or(0)
                .saturating_add(1);
            let outputs = tokio::select! {
                biased;
                () = self.answers.closed() => break,
                over = &mut self.over => {
                    self.finish(over.ok().flatten(), 0).await;
                    break;
                }
                request = requests.message() => match request {
                    Ok(Some(request)) => {
                        let now = shared.now();
                        shared.with(|machine| machine.append(now, self.id, &request))
                    }
                    Ok(None) => shared.with(|machine| machine.half_close(self.id)),
                    Err(_) => break,
                },
                // A year is as good as never, and tokio's timer takes no more than two.
                () = tokio::time::sleep(Duration::from_millis(wait.min(365 * 86_400_000))) => {
                    self.service.tick();
                    continue;
                }
            };
            if !self.send(outputs).await {
                break;
            }
        }
        self.service.doors.forget(self.id);
        shared.with(|machine| machine.lost(self.id));
    }

    /// Sends this connection's own outputs and passes the others on; `false` when the call is over.
    async fn send(&self, outputs: Vec<Output>) -> bool {
        let (own, others) = outputs
            .into_iter()
            .partition(|output| output.connection == self.id);
        self.service.dispatch(others);
        for Output { delay_ms, event, .. } in own {
            match event {
                Event::Answer(answer) => {
                    if !self.hold(Ok(*answer), delay_ms).await {
                        return false;
                    }
                }
                Event::End(refusal) => {
                    self.finish(refusal, delay_ms).await;
                    return false;
                }
            }
        }
        true
    }

    async fn finish(&self, refusal: Option<Refusal>, delay_ms: u64) {
        if let Some(refusal) = refusal {
            self.hold(Err(status(&refusal)), delay_ms).await;
        }
    }

    async fn hold(&self, answer: Result<AppendRowsResponse, Status>, delay_ms: u64) -> bool {
        let due = (delay_ms > 0).then(|| Instant::now() + Duration::from_millis(delay_ms));
        self.answers.send(Held { due, answer }).await.is_ok()
    }
}

impl Doors {
    fn open(&self, id: ConnectionId) -> oneshot::Receiver<Option<Refusal>> {
        let (door, over) = oneshot::channel();
        self.lock().insert(id, door);
        over
    }

    pub(super) fn close(&self, id: ConnectionId, refusal: Option<Refusal>) {
        if let Some(door) = self.lock().remove(&id) {
            // The call may have ended by itself in the meantime.
            drop(door.send(refusal));
        }
    }

    fn forget(&self, id: ConnectionId) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ConnectionId, oneshot::Sender<Option<Refusal>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
