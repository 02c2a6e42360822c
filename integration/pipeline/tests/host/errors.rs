//! What a file can do wrong, and what is said about it.

use std::path::Path;
use std::sync::Arc;

use bigquery_sink_pipeline::{Control, HostError, Pipeline, Step};

use crate::fake::World;

fn pipeline(folder: &Path, options: &str) -> Pipeline {
    let sql = format!(
        "CREATE TABLE lines (n BIGINT NOT NULL, t TEXT) WITH (connector = 'single_file', path = 'in.json', format = 'json'{options});
         CREATE TABLE out (n BIGINT NOT NULL, t TEXT) WITH (connector = 'bigquery');
         INSERT INTO out SELECT n, t FROM lines"
    );
    Pipeline::parse(&sql, &folder.join("p.sql")).unwrap()
}

fn write(folder: &Path, lines: impl IntoIterator<Item = String>) -> String {
    let file = folder.join("in.json");
    std::fs::write(&file, lines.into_iter().collect::<Vec<_>>().join("\n")).unwrap();
    file.display().to_string()
}

fn line(n: u64) -> String {
    format!(r#"{{"n": {n}, "t": "text {n}"}}"#)
}

fn rows(numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    let mut rows: Vec<_> = numbers.into_iter().map(|n| format!("{n}|text {n}")).collect();
    rows.sort();
    rows
}

async fn run(world: &World, pipeline: &Pipeline) -> Result<u64, HostError> {
    world
        .run(pipeline, Control::new())
        .await
        .map(|summary| summary.rows_rejected)
}

#[tokio::test(start_paused = true)]
async fn a_wrong_line_ends_the_run_with_its_number_and_after_mending_it_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let bad = |n| {
        if n == 2500 {
            r#"{"n": "secret"}"#.to_owned()
        } else {
            line(n)
        }
    };
    let file = write(folder.path(), (0..3000).map(bad));
    let world = World::new(&folder.path().join("state"), 2);
    let pipeline = pipeline(folder.path(), "");
    let message = format!(
        "{file}, line 2501: column n is not BIGINT; mend the line, or set bad_data = 'drop' to leave such lines out"
    );
    assert_eq!(run(&world, &pipeline).await.unwrap_err().to_string(), message);
    write(folder.path(), (0..3000).map(line));
    run(&world, &pipeline).await.unwrap();
    assert_eq!(world.visible(), rows(0..3000));
}

#[tokio::test(start_paused = true)]
async fn wrong_lines_are_left_out_and_counted_if_the_table_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let bad = |n| {
        if n % 1000 == 7 {
            "not json".to_owned()
        } else {
            line(n)
        }
    };
    write(
        folder.path(),
        (0..3000).map(bad).chain([String::new(), "  ".into()]),
    );
    let world = World::new(&folder.path().join("state"), 2);
    assert_eq!(
        run(&world, &pipeline(folder.path(), ", bad_data = 'drop'"))
            .await
            .unwrap(),
        3
    );
    assert_eq!(world.visible(), rows((0..3000).filter(|n| n % 1000 != 7)));
}

#[tokio::test(start_paused = true)]
async fn a_missing_file_ends_the_run_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::new(&folder.path().join("state"), 1);
    let error = run(&world, &pipeline(folder.path(), "")).await.unwrap_err();
    let file = folder.path().join("in.json");
    assert_eq!(
        error.to_string(),
        format!(
            "cannot open {}: No such file or directory (os error 2)",
            file.display()
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_file_that_shrank_or_changed_since_the_checkpoint_is_refused_and_the_old_one_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), (0..3000).map(line));
    let pipeline = pipeline(folder.path(), "");
    let mut world = World::new(&folder.path().join("state"), 1);
    world.change = Arc::new(|config| config.source_rate = Some(2000.0));
    let mut at = 0;
    loop {
        // Killed after its second checkpoint, wherever that is in the list of steps.
        assert!(!world.run_and_kill(&pipeline, at).await);
        if world.steps().contains(&Step::Marked(bigquery_sink::Epoch(2))) {
            break;
        }
        at += 1;
    }
    write(folder.path(), (0..10).map(line));
    let error = run(&world, &pipeline).await.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{file}: has 239 bytes, but ")),
        "{error}"
    );
    assert!(
        error.ends_with("put the whole file back, or start anew with --new-state"),
        "{error}"
    );
    write(folder.path(), (0..3000).map(|n| line(n + 1000)));
    let error = run(&world, &pipeline).await.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{file}: has changed before byte ")),
        "{error}"
    );
    write(folder.path(), (0..3000).map(line));
    run(&world, &pipeline).await.unwrap();
    assert_eq!(world.visible(), rows(0..3000));
}

#[tokio::test(start_paused = true)]
async fn another_file_is_read_in_place_of_the_one_the_sql_names() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), (0..3).map(line));
    std::fs::write(folder.path().join("other.json"), line(7)).unwrap();
    let mut world = World::new(&folder.path().join("state"), 1);
    let other = folder.path().join("other.json");
    world.change = Arc::new(move |config| drop(config.data.insert("in.json".into(), other.clone())));
    run(&world, &pipeline(folder.path(), "")).await.unwrap();
    assert_eq!(world.visible(), rows([7]));
}

#[tokio::test(start_paused = true)]
async fn a_quoted_field_goes_over_lines_and_errors_still_name_the_right_one() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "
        CREATE TABLE lines (n BIGINT NOT NULL, t TEXT) WITH (connector = 'single_file', path = 'in.csv', format = 'csv');
        CREATE TABLE out WITH (connector = 'bigquery');
        INSERT INTO out SELECT n, t FROM lines";
    let pipeline = Pipeline::parse(sql, &folder.path().join("p.sql")).unwrap();
    let file = folder.path().join("in.csv");
    std::fs::write(&file, "t,n\r\n\"two\nlines, \"\"quoted\"\"\",1\r\n,2\r\nx,\r\n").unwrap();
    let world = World::new(&folder.path().join("state"), 1);
    let error = run(&world, &pipeline).await.unwrap_err().to_string();
    let reason = "line 5: column n is NOT NULL but empty; mend the line, or set bad_data = 'drop' to leave such lines out";
    assert_eq!(error, format!("{}, {reason}", file.display()));
    std::fs::write(&file, "t,n\r\n\"two\nlines, \"\"quoted\"\"\",1\r\n,2\r\nx,3").unwrap();
    run(&world, &pipeline).await.unwrap();
    assert_eq!(world.visible(), ["1|two\nlines, \"quoted\"", "2|NULL", "3|x"]);
}
