//! Which files of a folder are read, in which order, by which options.

use super::*;

#[tokio::test]
async fn files_are_read_by_name_and_without_a_pattern_those_of_the_folder_alone() {
    let write = |world: &World| {
        for (name, id) in [
            ("b.json", 2),
            ("a.json", 1),
            ("a/x.json", 4),
            ("a/x.txt", 5),
            ("B.json", 3),
        ] {
            world.write(name, format!("{{\"id\": {id}}}"));
        }
    };
    let mut world = World::json();
    write(&world);
    assert_eq!(world.read().await.unwrap(), ["3", "1", "2"]);
    for (pattern, ids) in [
        (r"\.json$", &["3", "1", "4", "2"][..]),
        ("x", &["4", "5"]),
        ("^a/", &["4", "5"]),
        ("^a", &["1", "4", "5"]),
    ] {
        let mut world = World::json().with_pattern(pattern);
        write(&world);
        assert_eq!(world.read().await.unwrap(), ids, "{pattern}");
    }
}

#[tokio::test]
async fn one_file_is_read_like_a_folder_of_it() {
    let mut world = World::json();
    std::fs::write(world.folder.path().join("in"), "{\"id\": 1}\n{\"id\": 2}").unwrap();
    assert_eq!(world.read().await.unwrap(), ["1", "2"]);
    assert_eq!(world.position(), "all 1 files");
    std::fs::remove_file(world.folder.path().join("in")).unwrap();
    assert_eq!(world.read().await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn wrong_records_are_dropped_and_counted_over_all_files() {
    let mut world = World::json().dropping();
    world.write("a", "{\"id\": 1}\n{\"id\": x}\n");
    world.write("b", "{\"id\": x}\n{\"id\": x}\n{\"id\": 2}\n");
    world.write("c", "{\"id\": 3}\n");
    let mut source = world.open().await.unwrap();
    assert_eq!(world.read_on(source.as_mut()).await.unwrap(), ["1", "2", "3"]);
    assert_eq!(source.rejected(), 3);
}

#[tokio::test]
async fn what_is_no_folder_of_files_is_refused_by_name() {
    let mut world = World::json();
    let missing = world.read().await.unwrap_err();
    assert_eq!(
        missing,
        "cannot open FOLDER/in: No such file or directory (os error 2)"
    );
    std::fs::create_dir(world.folder.path().join("in")).unwrap();
    let empty = "FOLDER/in: has no file; put the files there before the job starts";
    assert_eq!(world.read().await.unwrap_err(), empty);
    world.write("sub/a.json", "{\"id\": 1}");
    assert_eq!(world.read().await.unwrap_err(), empty);
    let mut world = world.with_pattern("csv$");
    let empty = "FOLDER/in: has no file that matches 'csv$'; put the files there before the job starts";
    assert_eq!(world.read().await.unwrap_err(), empty);

    world.config.pattern = Some("sub".into());
    let _socket = std::os::unix::net::UnixListener::bind(world.path("socket")).unwrap();
    assert_eq!(world.read().await.unwrap(), ["1"]);
    world.stored.clear();
    world.config.pattern = None;
    let socket =
        "FOLDER/in/socket: is a socket, not a file; leave it out by the option 'source.regex_pattern'";
    assert_eq!(world.read().await.unwrap_err(), socket);
    std::os::unix::fs::symlink("..", world.path("sub/up")).unwrap();
    world.config.pattern = Some("json".into());
    let circle = "FOLDER/in/sub/up: leads back to a folder that it is in; remove the link";
    assert_eq!(world.read().await.unwrap_err(), circle);
}

/// What is wrong with a table of these options.
fn refused(options: &str) -> String {
    let sql = format!(
        "CREATE TABLE t (a BIGINT) WITH (connector = 'filesystem', type = 'source', {options});
         CREATE TABLE out (a BIGINT) WITH (connector = 'bigquery');
         INSERT INTO out SELECT a FROM t"
    );
    match crate::Pipeline::parse(&sql, std::path::Path::new("p.sql")) {
        Ok(pipeline) => format!("{:?}", pipeline.source.config),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn options_are_arroyos_and_each_wrong_one_is_named() {
    let good = "path = 'x', format = 'json'";
    for (options, error) in [
        (
            "format = 'json'",
            "14: table t has no option 'path'; add it to WITH (...)",
        ),
        (
            "path = 'x'",
            "14: table t has no option 'format'; add it to WITH (...)",
        ),
        (
            "path = 'x', format = 'csv'",
            "88: option 'format' is 'csv'; it must be 'json' or 'parquet'",
        ),
        (
            "path = 's3://b/x', format = 'json'",
            "76: option 'path' is 's3://b/x'; it must be a path of this machine; object stores are read by Arroyo, not by the embedded host",
        ),
        (
            &format!("{good}, 'source.regex_pattern' = '('"),
            "105: option 'source.regex_pattern' is '('; it must be a regular expression",
        ),
        (
            &format!("{good}, 'source.regex-pattern' = 'x'"),
            "105: connector filesystem has no option 'source.regex-pattern'; did you mean 'source.regex_pattern'?",
        ),
        (
            &format!("{good}, 'source.compression' = 'lz4'"),
            "105: option 'source.compression' is 'lz4'; it must be 'none', 'gzip' or 'zstd'",
        ),
        (
            "path = 'x', format = 'parquet', 'source.compression' = 'gzip'",
            "108: option 'source.compression' is 'gzip'; it must be 'none' with format 'parquet', which is compressed within",
        ),
        (
            &format!("{good}, bad_data = 'skip'"),
            "105: option 'bad_data' is 'skip'; it must be 'fail' or 'drop'",
        ),
        (
            "path = 'x', format = 'parquet', bad_data = 'drop'",
            "108: option 'bad_data' is 'drop'; it must be 'fail' with format 'parquet', which has no records to leave out",
        ),
    ] {
        assert_eq!(refused(options), format!("p.sql:1:{error}"));
    }
    let read = |path, pattern| {
        format!(
            "Filesystem(FilesystemConfig {{ path: \"{path}\", format: Json, pattern: {pattern}, compression: None, bad_data: Drop }})"
        )
    };
    for (path, local) in [
        ("x/y", "x/y"),
        ("/x", "/x"),
        ("file:///x", "/x"),
        ("file:/x", "/x"),
        ("file://x", "/x"),
    ] {
        let options =
            format!("path = '{path}', format = 'json', bad_data = 'drop', 'source.compression' = 'none'");
        assert_eq!(refused(&options), read(local, "None"));
        let options = format!("{options}, 'source.regex_pattern' = 'a.*'");
        assert_eq!(refused(&options), read(local, "Some(\"a.*\")"));
    }
}
