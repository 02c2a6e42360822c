//! `checkpoint`: what a state directory holds.

use crate::args::CheckpointArguments;
use crate::failure::Failure;

pub(crate) async fn checkpoint(arguments: CheckpointArguments) -> Result<(), Failure> {
    drop(arguments);
    std::future::ready(Err(Failure::usage("not yet"))).await
}
