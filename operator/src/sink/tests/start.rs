//! The start: table, columns, rows that do not fit, and the way through TLS with a token.

use std::time::Duration;

use bigquery_write_emulator::machine::MissingTable;
use bigquery_write_emulator::{Emulator, TlsFiles};

use super::*;
use crate::testing::{Certificates, TokenServer, file};

#[tokio::test(start_paused = true)]
async fn a_missing_table_is_an_error_before_the_first_row() {
    for (answer, text) in [
        (
            MissingTable::NotFound,
            "table projects/shop/datasets/sales/tables/returns does not exist; create it, or let the sink do so with option 'table.create' = \
             'if_missing' (Requested entity was not found. Entity: projects/shop/datasets/sales/tables/returns (NotFound))",
        ),
        (
            MissingTable::PermissionDenied,
            "table projects/shop/datasets/sales/tables/returns cannot be written: it does not exist, or the permissions bigquery.tables.get \
             and bigquery.tables.updateData are missing (Permission 'TABLES_UPDATE_DATA' denied on resource \
             'projects/shop/datasets/sales/tables/returns' (or it may not exist). (PermissionDenied))",
        ),
    ] {
        let world = World::with(&[("table", "returns")]);
        world
            .handle
            .shared()
            .with(|machine| machine.switches_mut().missing_table = answer);
        let begin = Instant::now();
        let error = world.sink(0, 1).on_start(None).await.unwrap_err();
        assert_eq!(told(&error), (Blame::User, Retry::Never, text.to_owned()));
        assert!(
            begin.elapsed() < Duration::from_millis(100),
            "nothing to wait for"
        );
        let checked = BigQuerySink::check(&world.options, &columns(), &world.environment)
            .await
            .unwrap_err();
        assert_eq!(checked.to_string(), text);
    }
}

#[tokio::test(start_paused = true)]
async fn every_column_that_does_not_fit_is_listed() {
    let world = World::new();
    let columns = Arc::new(ArrowSchema::new(vec![
        Field::new("name", DataType::Int64, true),
        Field::new("price", DataType::Float64, true),
    ]));
    let error = BigQuerySink::check(&world.options, &columns, &world.environment)
        .await
        .unwrap_err();
    let text = error.to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        format!("3 columns of the pipeline do not fit table {TABLE}:")
    );
    assert!(
        lines[1].starts_with("  column `name`: the pipeline writes "),
        "{text}"
    );
    assert!(
        lines[2].starts_with("  column `price`: the pipeline writes "),
        "{text}"
    );
    assert!(
        lines[3].starts_with("  column `id`: the table requires "),
        "{text}"
    );
    assert_eq!(
        (lines.len(), error.blame(), error.retry()),
        (4, Blame::User, Retry::Never)
    );
}

#[tokio::test(start_paused = true)]
async fn a_start_waits_for_what_passes_and_not_for_long() {
    let world = World::new();
    let refuse = |times: u32| {
        format!(
            r#"{{"rpc": "GetWriteStream", "occurrence": {{"times": {times}}},
                "action": {{"kind": "refuse", "code": "UNAVAILABLE", "message": "draining"}}}}"#
        )
    };
    world.fault(&refuse(3));
    let mut sink = world.start(None).await;
    publish(1, rows(0..2), &mut sink).await;
    assert_eq!(world.visible(), [0, 1]);

    world.fault(&refuse(1000));
    let begin = Instant::now();
    let error = world.sink(0, 1).on_start(None).await.unwrap_err();
    let text = format!("table {TABLE} cannot be read: draining (Unavailable)");
    assert_eq!(told(&error), (Blame::External, Retry::Restart, text));
    assert!(
        (10..=15).contains(&begin.elapsed().as_secs()),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn rows_that_do_not_fit_are_named_without_their_values_and_none_goes_out() {
    let world = World::with(&[("write.sub_microseconds", "refuse")]);
    // The table requires the id; what the pipeline says of its columns is not a promise.
    let nullable = Arc::new(ArrowSchema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("name", DataType::Utf8, true),
    ]));
    let mut sink = world.sink(0, 1);
    sink.columns = Arc::clone(&nullable);
    sink.on_start(None).await.unwrap();
    let ids = Int64Array::from(vec![Some(1), None, Some(3), None]);
    let names = StringArray::from(vec!["secret"; 4]);
    let batch = RecordBatch::try_new(nullable, vec![Arc::new(ids), Arc::new(names)]).unwrap();
    let error = sink.process_batch(batch).await.unwrap_err();
    let text = "2 rows do not fit the table: row 2 of the batch, column `id`: NULL in a REQUIRED column; row 4 of the batch, column `id`: \
                NULL in a REQUIRED column";
    assert_eq!(told(&error), (Blame::User, Retry::Never, text.to_owned()));
    assert!(!format!("{error:?}").contains("secret"));
    assert_eq!(world.total(Counter::RowsRejected(RejectedBy::Sink)), 2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.calls(Rpc::CreateWriteStream), 0);
}

/// An emulator behind TLS that lets one token in, and a sink's options for it.
struct Secured {
    emulator: Emulator,
    tokens: TokenServer,
    files: Vec<tempfile::NamedTempFile>,
    endpoint: String,
}

impl Secured {
    async fn start(tokens: &[&str]) -> Self {
        let certificates = Certificates::new();
        let (cert, key) = (file(&certificates.server.0), file(&certificates.server.1));
        let tls = TlsFiles {
            cert: cert.path().to_owned(),
            key: key.path().to_owned(),
        };
        let emulator = Emulator::start(Config {
            tls: Some(tls),
            ..Config::default()
        })
        .await
        .unwrap();
        make_table(&emulator.handle());
        let tokens = TokenServer::start(tokens).await;
        let key_file = tokens.key_file();
        Self {
            endpoint: format!("https://{}", emulator.grpc_addr()),
            emulator,
            tokens,
            files: vec![certificates.ca, key_file, cert, key],
        }
    }

    fn let_in(&self, token: &str) {
        let tokens = vec![token.to_owned()];
        let handle = self.emulator.handle();
        handle
            .shared()
            .with(|machine| machine.switches_mut().require_token = Some(tokens));
    }

    fn sink(&self, ca: &std::path::Path) -> BigQuerySink {
        let options = Arc::new(options(&[
            ("endpoint.grpc", &self.endpoint),
            ("endpoint.ca", ca.to_str().unwrap()),
            ("credentials", self.files[1].path().to_str().unwrap()),
        ]));
        let environment = Environment::new(&options, Arc::default()).unwrap();
        let task = Task {
            subtask: SubtaskIndex(0),
            parallelism: 1,
            started_at_micros: 1_800_000_000_000_000,
            operator_name: "orders".to_owned(),
            node_id: 1,
        };
        BigQuerySink::new(options, columns(), task, environment)
    }
}

#[tokio::test]
async fn epochs_go_through_tls_and_a_refused_token_is_replaced_once() {
    let secured = Secured::start(&["one", "two", "three"]).await;
    let handle = secured.emulator.handle();
    secured.let_in("one");
    let mut sink = secured.sink(secured.files[0].path());
    sink.on_start(None).await.unwrap();
    publish(1, rows(0..3), &mut sink).await;

    // The token ends with rows on their way (the append call was let in, its next one is not) and a commit to come.
    secured.let_in("two");
    handle.end_calls(&bigquery_write_emulator::machine::Refusal::restarted());
    sink.process_batch(rows(3..6)).await.unwrap();
    let second = checkpoint(2, &mut sink).await;
    secured.let_in("three");
    assert_eq!(commit(2, &second, &mut sink).await, 3);
    let visible = handle.rows(&target()).unwrap();
    assert_eq!(
        visible.column(0).as_primitive::<Int64Type>().values(),
        &[0, 1, 2, 3, 4, 5]
    );

    assert_eq!(secured.tokens.claims().len(), 3);
    secured.emulator.shutdown().await;
}

#[tokio::test]
async fn another_authority_is_said_at_once() {
    let secured = Secured::start(&["one"]).await;
    let other = Certificates::new();
    let begin = Instant::now();
    let error = secured.sink(other.ca.path()).on_start(None).await.unwrap_err();
    let text = format!(
        "table {TABLE} cannot be read: cannot reach {}: TLS failed: its certificate is signed by an authority that is not trusted; give \
         the authority's PEM file as option 'endpoint.ca' (Unavailable)",
        secured.endpoint
    );
    assert_eq!(told(&error), (Blame::User, Retry::Never, text));
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(secured.emulator.handle().calls(), []);
}

#[tokio::test]
async fn a_token_that_is_never_taken_fails_the_start() {
    let secured = Secured::start(&["one", "two"]).await;
    secured.let_in("another");
    let error = secured
        .sink(secured.files[0].path())
        .on_start(None)
        .await
        .unwrap_err();
    let text = format!(
        "table {TABLE} cannot be read: Request had invalid authentication credentials. Expected OAuth 2 access token. (Unauthenticated); \
         see option 'credentials'"
    );
    assert_eq!(told(&error), (Blame::User, Retry::Never, text));
}
