//! `emulator`: BigQuery on this machine.

use std::net::SocketAddr;

use bigquery_write_emulator::catalog::DatasetRef;
use bigquery_write_emulator::faults::FaultPlan;
use bigquery_write_emulator::{Config, Emulator, TlsFiles};

use crate::args::EmulatorArguments;
use crate::failure::Failure;
use crate::output::print;
use crate::run::stop_signal;

pub(crate) async fn emulator(arguments: EmulatorArguments) -> Result<(), Failure> {
    let mut config = Config {
        grpc: arguments.grpc,
        http: arguments.http,
        ..Config::default()
    };
    if let Some([cert, key]) = arguments.tls.as_deref() {
        config.tls = Some(TlsFiles {
            cert: cert.clone(),
            key: key.clone(),
        });
    }
    if let Some(file) = &arguments.faults {
        let shown = file.display();
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("{shown}: the fault plan cannot be read: {error}")))?;
        config.faults =
            FaultPlan::parse(&text).map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
    }
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let emulator = Emulator::start(config)
        .await
        .map_err(|error| Failure::running(error.to_string()))?;
    for dataset in &arguments.dataset {
        emulator
            .handle()
            .create_dataset(&DatasetRef::new(&arguments.project, dataset), "US")
            .map_err(|error| Failure::usage(error.to_string()))?;
    }
    let (grpc, http) = (emulator.grpc_addr(), emulator.http_addr());
    print(&format!(
        "Storage Write API  {scheme}://{grpc}\nREST API           {scheme}://{http}\n{}\n",
        usage(scheme, grpc, http)
    ))?;
    stop_signal().await;
    emulator.shutdown().await;
    Ok(())
}

fn usage(scheme: &str, grpc: SocketAddr, http: SocketAddr) -> String {
    format!(
        "A pipeline writes here with 'endpoint.grpc' = '{scheme}://{grpc}', 'endpoint.http' = '{scheme}://{http}'. Ctrl-C stops; tables are in \
         memory and go then."
    )
}
