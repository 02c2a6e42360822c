//! Names parse, print, and say what is wrong with which part.

#![allow(clippy::unwrap_used)] // helpers are tests too

use bigquery_write_proto::names::{NamePart, NameReason, ProjectId, StreamName, TableId, TableName};

fn refusal(text: &str) -> String {
    text.parse::<StreamName>()
        .map(|name| name.to_string())
        .unwrap_err()
        .to_string()
}

#[test]
fn a_table_name_parses_into_its_parts_and_prints_as_it_was() {
    let text = "projects/example.com:my-project/datasets/raw_2/tables/events$20240229";
    let name: TableName = text.parse().unwrap();
    assert_eq!(name.project().as_str(), "example.com:my-project");
    assert_eq!(name.dataset().as_str(), "raw_2");
    assert_eq!(name.table().as_str(), "events$20240229");
    assert_eq!(name.table().base(), "events");
    assert_eq!(name.table().decorator(), Some("20240229"));
    assert_eq!(name.to_string(), text);
    assert_eq!(
        name.without_decorator().to_string(),
        "projects/example.com:my-project/datasets/raw_2/tables/events"
    );
}

#[test]
fn the_default_stream_parses_in_both_spellings_and_prints_either() {
    let long: StreamName = "projects/p/datasets/d/tables/t/streams/_default".parse().unwrap();
    let short: StreamName = "projects/p/datasets/d/tables/t/_default".parse().unwrap();
    assert_eq!(long, short);
    assert_eq!(long, long.table().default_stream());
    assert!(long.is_default());
    assert_eq!(
        short.to_string(),
        "projects/p/datasets/d/tables/t/streams/_default"
    );
    assert_eq!(long.short(), "projects/p/datasets/d/tables/t/_default");
}

#[test]
fn an_application_stream_keeps_its_opaque_id() {
    let text = "projects/p/datasets/d/tables/t/streams/Cic2NWE5-MDAwMDAwOnM2";
    let name: StreamName = text.parse().unwrap();
    assert_eq!(name.id(), "Cic2NWE5-MDAwMDAwOnM2");
    assert!(!name.is_default());
    assert_eq!(
        (name.to_string(), name.short()),
        (text.to_owned(), text.to_owned())
    );
    assert_eq!(name.table().stream(name.id()), Ok(name.clone()));
}

#[test]
fn tables_take_letters_marks_numbers_connectors_dashes_and_spaces_of_any_script() {
    for ok in [
        "t",
        "naïve-col",
        "表 1",
        "été_2024",
        "a\u{203f}b",
        "e\u{301}",
        "१२",
    ] {
        assert!(TableId::new(ok).is_ok(), "{ok}");
    }
    for (wrong, c) in [
        ("a.b", '.'),
        ("a/b", '/'),
        ("a`b", '`'),
        ("a\nb", '\n'),
        ("a€", '€'),
        ("a🦀", '🦀'),
    ] {
        let reason = TableId::new(wrong).unwrap_err().reason;
        assert!(
            matches!(reason, NameReason::Character(found, _) if found == c),
            "{wrong}: {reason}"
        );
    }
    assert!(TableId::new("é".repeat(512)).is_ok());
    assert_eq!(
        TableId::new("é".repeat(513)).unwrap_err().reason,
        NameReason::TooLong(1024)
    );
}

#[test]
fn a_decorator_is_a_day_of_the_calendar() {
    assert!(TableId::new("t$20240229").is_ok());
    for wrong in [
        "t$",
        "t$2024",
        "t$20230229",
        "t$20241301",
        "t$20240100",
        "t$2024022x",
        "t$00000101",
        "t$__NULL__",
    ] {
        assert_eq!(
            TableId::new(wrong).unwrap_err().part,
            NamePart::Decorator,
            "{wrong}"
        );
    }
    for (other, what) in [
        ("t$2024022913", "hour"),
        ("t$202402", "month"),
        ("t$2024", "year"),
    ] {
        let decorator = other.trim_start_matches("t$");
        let text = format!(
            "invalid partition decorator \"{decorator}\": it must have the form YYYYMMDD; rows can be written to a day, not to a{} {what}",
            if what == "hour" { "n" } else { "" }
        );
        assert_eq!(TableId::new(other).unwrap_err().to_string(), text);
    }
}

#[test]
fn projects_follow_the_resource_managers_rule() {
    for ok in [
        "test",
        "my-project-1",
        "example.com:p",
        "a23456789012345678901234567890",
    ] {
        assert!(ProjectId::new(ok).is_ok(), "{ok}");
    }
    for (wrong, reason) in [
        ("", NameReason::Empty),
        ("1p", NameReason::Start("a lower-case letter")),
        ("p-", NameReason::End('-')),
        ("a234567890123456789012345678901", NameReason::TooLong(30)),
        ("a..b:p", NameReason::Form("PROJECT or DOMAIN:PROJECT")),
        ("a.b:", NameReason::Form("PROJECT or DOMAIN:PROJECT")),
    ] {
        assert_eq!(ProjectId::new(wrong).unwrap_err().reason, reason, "{wrong}");
    }
}

#[test]
fn an_error_says_which_part_is_wrong_and_why() {
    assert_eq!(
        refusal("projects/P/datasets/d/tables/t/streams/s"),
        "invalid project \"P\": 'P' is not allowed; allowed are lower-case letters, digits and hyphens"
    );
    assert_eq!(
        refusal("projects/p/datasets/a.b/tables/t/streams/s"),
        "invalid dataset \"a.b\": '.' is not allowed; allowed are letters, digits, underscores and hyphens"
    );
    assert_eq!(
        refusal("projects/p/datasets/d/tables/t/streams/"),
        "invalid stream id \"\": it is empty"
    );
    let form = "it must have the form projects/PROJECT/datasets/DATASET/tables/TABLE/streams/STREAM";
    for wrong in [
        "",
        "t",
        "projects/p/datasets/d/tables/t",
        "projects/p/datasets/d/tables/t/s",
        "p/d/t/streams/s",
    ] {
        assert_eq!(refusal(wrong), format!("invalid stream name {wrong:?}: {form}"));
    }
    assert_eq!(
        "projects/p/tables/t"
            .parse::<TableName>()
            .unwrap_err()
            .to_string(),
        "invalid table name \"projects/p/tables/t\": it must have the form \
         projects/PROJECT/datasets/DATASET/tables/TABLE"
    );
}
