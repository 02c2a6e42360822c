//! `query`: a SELECT against the emulator or BigQuery.

use crate::args::QueryArguments;
use crate::failure::Failure;

pub(crate) async fn query(arguments: QueryArguments) -> Result<(), Failure> {
    drop(arguments);
    std::future::ready(Err(Failure::usage("not yet"))).await
}
