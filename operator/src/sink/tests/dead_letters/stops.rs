//! What ends a job in spite of dead letters, or without them, and what its error says.

use super::*;

#[tokio::test(start_paused = true)]
async fn too_many_refused_rows_stop_the_job_with_the_commonest_reason() {
    let world = World::with_letters("arrow");
    let mut sink = world.start_parcels(None).await;
    let bad = |count: i64| (0..count).map(Long).collect::<Vec<_>>();
    sink.process_batch(batch(&bad(99))).await.unwrap();
    // 99 say nothing yet.
    let taken = checkpoint(1, &mut sink).await;
    commit(1, &taken, &mut sink).await;
    assert_eq!(world.letters().len(), 99);
    sink.process_batch(batch(&[Dear(100)])).await.unwrap();
    let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
    let text = "100 of the last 100 rows were refused, more than dead_letter.max_ratio = 0.1 allows; the commonest reason, 99 times: \
                column `label`: longer than 10 characters. Mend the rows or the table, or allow more; dead letters since the last \
                checkpoint are not published";
    assert_eq!(told(&error), (Blame::User, Retry::Never, text.to_owned()));
    assert_eq!(world.letters().len(), 99);

    // What BigQuery refuses counts too, once.
    let world = World::of_parcels(&[LETTERS, &[("dead_letter.max_ratio", "0.5")]].concat());
    let mut sink = world.start_parcels(None).await;
    let mixed: Vec<_> = (0..200)
        .map(|id| if id % 2 == 0 { Lost(id) } else { Good(id) })
        .collect();
    sink.process_batch(batch(&mixed)).await.unwrap();
    checkpoint(1, &mut sink).await;
    sink.process_batch(batch(&[Lost(200)])).await.unwrap();
    let error = sink.handle_checkpoint(barrier(2)).await.unwrap_err();
    assert!(
        error.to_string().starts_with(
            "101 of the last 201 rows were refused, more than dead_letter.max_ratio = 0.5 allows; the commonest reason, 101 times: \
             column `place`: Invalid geography on field place. Mend "
        ),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_refused_itself_stops_the_job_for_good() {
    let world = World::with_letters("arrow");
    world.fault(
        r#"{"rpc": "AppendRows", "table": "refused", "action": {"kind": "row_errors", "rows": [0], "message": "no"}}"#,
    );
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Good(0), Long(1)])).await.unwrap();
    let error = sink.handle_checkpoint(barrier(1)).await.unwrap_err();
    assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
    let text = error.to_string();
    assert!(
        text.starts_with("appending dead letters failed: InvalidArgument: "),
        "{text}"
    );
    assert!(
        text.contains(
            "; row 1 of the request: no; a dead letter that is refused itself can go nowhere. Change the dead-letter table so that it takes what the \
             sink writes there, or name another one, and start again"
        ),
        "{text}"
    );
    assert_eq!((world.delivered(), world.letters()), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn without_dead_letters_the_error_names_row_column_and_reason_and_no_value() {
    // reports.md 38, 90 and 91.
    let world = World::of_parcels(&[("table", "parcels")]);
    let mut sink = world.start_parcels(None).await;
    let error = sink
        .process_batch(batch(&[Good(0), Long(1), Dear(2)]))
        .await
        .unwrap_err();
    let text = "2 rows do not fit the table: row 2 of the batch, column `label`: longer than 10 characters; row 3 of the batch, \
                column `price`: more than 3 digits before the decimal point";
    assert_eq!(told(&error), (Blame::User, Retry::Never, text.to_owned()));

    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Good(0), Lost(1)])).await.unwrap();
    let error = sink.handle_checkpoint(barrier(1)).await.unwrap_err();
    assert_eq!((error.blame(), error.retry()), (Blame::User, Retry::Never));
    let text = error.to_string();
    assert!(
        text.contains(
            "; row 2 of the request: Invalid geography on field place. (rows of the request are bad"
        ),
        "{text}"
    );
    assert!(!text.contains("nowhere"), "{text}");
    assert_eq!(world.letters(), vec![]);
}

#[tokio::test(start_paused = true)]
async fn what_bigquery_quotes_of_a_row_is_in_its_dead_letter_and_in_no_error() {
    let said = r#"{"rpc": "AppendRows", "table": "parcels", "occurrence": {"nth": 1},
        "action": {"kind": "row_errors", "rows": [1], "message": "Invalid geography: nowhere on field place."}}"#;
    let world = World::of_parcels(&[("table", "parcels")]);
    world.fault(said);
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Good(0), Lost(1)])).await.unwrap();
    let text = sink.handle_checkpoint(barrier(1)).await.unwrap_err().to_string();
    assert!(
        text.contains(
            "; row 2 of the request: Invalid geography: … on field place. (rows of the request are bad)"
        ),
        "{text}"
    );
    assert!(!text.contains("nowhere"), "{text}");

    let world = World::with_letters("arrow");
    world.fault(said);
    let mut sink = world.start_parcels(None).await;
    sink.process_batch(batch(&[Good(0), Lost(1)])).await.unwrap();
    let taken = checkpoint(1, &mut sink).await;
    commit(1, &taken, &mut sink).await;
    let (row, _, epoch) = letter(Lost(1), 1);
    let reason = "place: Invalid geography: nowhere on field place.";
    assert_eq!(world.letters(), [(row, reason.to_owned(), epoch)]);
}
