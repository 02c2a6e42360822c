//! `/emulator`: faults, clock, latency, streams, calls.

use super::*;

/// Calls `/emulator/...` with a content type, if one is given.
async fn ask(world: &World, method: &str, path: &str, kind: Option<&str>, body: &str) -> (u16, Value) {
    let mut request = Request::builder().method(method).uri(format!("/emulator/{path}"));
    if let Some(kind) = kind {
        request = request.header("content-type", kind);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = world.router.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap())
}

const JSON: Option<&str> = Some("application/json");

fn bad(message: &str) -> (u16, Value) {
    (400, error(400, "INVALID_ARGUMENT", "invalid", message))
}

#[tokio::test]
async fn faults_are_shown_with_their_counts_replaced_and_dropped() {
    let world = World::with_rows(0).await;
    assert_eq!(
        ask(&world, "GET", "faults", None, "").await,
        (200, json!({ "rules": [] }))
    );
    let rule = json!({
        "rpc": "CreateWriteStream",
        "table": "t",
        "occurrence": { "from": 2 },
        "action": { "kind": "refuse", "code": "ABORTED", "message": "no", "in_band": false },
    });
    let plan = json!({ "rules": [rule] }).to_string();
    let shown = |seen: u64, fired: u64| {
        (
            200,
            json!({ "rules": [{ "rule": rule, "seen": seen, "fired": fired }] }),
        )
    };
    assert_eq!(ask(&world, "PUT", "faults", JSON, &plan).await, shown(0, 0));
    for _ in 0..3 {
        let request = bigquery_write_proto::wire::CreateWriteStreamRequest {
            parent: "projects/p/datasets/d/tables/t".to_owned(),
            write_stream: Some(Default::default()),
        };
        let meta = crate::machine::CallMeta::default();
        world
            .shared
            .with(|machine| drop(machine.create_write_stream(NOW, &meta, &request)));
    }
    assert_eq!(ask(&world, "GET", "faults", None, "").await, shown(3, 2));
    let kind = Some("Application/JSON; charset=utf-8");
    assert_eq!(ask(&world, "POST", "faults", kind, &plan).await, shown(0, 0));
    assert_eq!(
        ask(&world, "DELETE", "faults", None, "").await,
        (200, json!({ "rules": [] }))
    );
    assert_eq!(
        ask(&world, "GET", "faults", None, "").await,
        (200, json!({ "rules": [] }))
    );
}

#[tokio::test]
async fn a_plan_that_cannot_be_meant_is_refused_and_the_old_one_stays() {
    let world = World::new();
    let plan = r#"{"rules": [{"rpc": "FlushRows", "action": {"kind": "go_away"}}]}"#;
    ask(&world, "PUT", "faults", JSON, plan).await;
    let cases = [
        (
            r#"{"rules": [{"rpc": "FlushRows", "action": {"kind": "delay", "ms": "5"}}]}"#,
            "fault rule 0: action: ms: invalid type: string \"5\", expected u64",
        ),
        (
            r#"{"rules": [{"rpc": "FlushRows", "occurrence": {"nth": 0}, "action": {"kind": "go_away"}}]}"#,
            "fault rule 0: occurrence: calls are counted from 1: `nth`, `from` and `every` cannot be 0",
        ),
        (
            "",
            "cannot read the fault plan: EOF while parsing a value at line 1 column 0",
        ),
        (
            "[]",
            "cannot read the fault plan: it must be an object with a list of `rules`",
        ),
    ];
    for (body, said) in cases {
        assert_eq!(ask(&world, "PUT", "faults", JSON, body).await, bad(said));
    }
    let (_, faults) = ask(&world, "GET", "faults", None, "").await;
    assert_eq!(faults["rules"][0]["rule"]["action"], json!({ "kind": "go_away" }));
}

#[tokio::test]
async fn no_page_of_another_site_can_change_anything() {
    let world = World::new();
    let plain = [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("application/jsonp"),
    ];
    let calls = [
        ("POST", "faults"),
        ("PUT", "faults"),
        ("POST", "clock"),
        ("POST", "latency"),
        ("POST", "release"),
        ("POST", "go_away"),
        ("POST", "cut"),
    ];
    let said = "A call that changes the emulator must have the header Content-Type: application/json";
    for kind in plain {
        for (method, path) in calls {
            let body = r#"{"rules": [], "advance_ms": 5, "ms": 5}"#;
            assert_eq!(
                ask(&world, method, path, kind, body).await,
                bad(said),
                "{method} {path} {kind:?}"
            );
        }
    }
    assert_eq!(
        ask(&world, "GET", "clock", None, "").await,
        (200, json!({ "now_ms": NOW }))
    );
    assert_eq!(
        ask(&world, "GET", "latency", None, "").await,
        (200, json!({ "ms": 0 }))
    );
}

#[tokio::test]
async fn the_clock_goes_forward_and_what_becomes_too_old_ends() {
    let world = World::with_rows(0).await;
    let request = bigquery_write_proto::wire::CreateWriteStreamRequest {
        parent: "projects/p/datasets/d/tables/t".to_owned(),
        write_stream: Some(bigquery_write_proto::wire::WriteStream {
            r#type: bigquery_write_proto::wire::write_stream::Type::Pending as i32,
            ..Default::default()
        }),
    };
    let meta = crate::machine::CallMeta {
        authorization: Some("Bearer secret".to_owned()),
        ..crate::machine::CallMeta::default()
    };
    let created = world
        .shared
        .with(|machine| machine.create_write_stream(NOW, &meta, &request));
    let stream = json!({
        "name": created.result.unwrap().name,
        "kind": "PENDING",
        "end": 0,
        "flushed": 0,
        "finalized": false,
        "committed": false,
        "connected": false,
        "created_ms": NOW,
        "traffic_ms": NOW,
    });
    let held = ask(&world, "GET", "streams", None, "").await;
    assert_eq!(held, (200, json!({ "streams": [stream], "created": 1 })));
    let day = 86_400_001;
    let body = json!({ "advance_ms": day }).to_string();
    let now = ask(&world, "POST", "clock", JSON, &body).await;
    assert_eq!(now, (200, json!({ "now_ms": NOW + day })));
    let held = ask(&world, "GET", "streams", None, "").await;
    assert_eq!(held, (200, json!({ "streams": [], "created": 1 })));
    let (_, calls) = ask(&world, "GET", "calls", None, "").await;
    let call = json!({
        "at_ms": NOW,
        "rpc": "CreateWriteStream",
        "target": "projects/p/datasets/d/tables/t",
        "request": "Pending",
        "answer": "OK",
        "refused": false,
    });
    assert_eq!(calls, json!({ "calls": [call] }));

    for (body, said) in [
        (
            "{}",
            "Invalid JSON payload received. missing field `advance_ms` at line 1 column 2",
        ),
        (
            r#"{"advance_ms": -1}"#,
            "Invalid JSON payload received. advance_ms: invalid value: integer `-1`, expected u32 at line 1 column 17",
        ),
    ] {
        assert_eq!(ask(&world, "POST", "clock", JSON, body).await, bad(said));
    }
}

#[tokio::test]
async fn latency_is_set_and_orders_without_words_take_none() {
    let world = World::new();
    assert_eq!(
        ask(&world, "PUT", "latency", JSON, r#"{"ms": 30}"#).await,
        (200, json!({ "ms": 30 }))
    );
    assert_eq!(
        ask(&world, "GET", "latency", None, "").await,
        (200, json!({ "ms": 30 }))
    );
    for (path, answer) in [
        ("release", json!({})),
        ("go_away", json!({ "connections": 0 })),
        ("cut", json!({ "connections": 0 })),
    ] {
        assert_eq!(ask(&world, "POST", path, JSON, "").await, (200, answer.clone()));
        assert_eq!(ask(&world, "POST", path, JSON, "{}").await, (200, answer));
        let said =
            "Invalid JSON payload received. all: unknown field `all`, there are no fields at line 1 column 6";
        assert_eq!(ask(&world, "POST", path, JSON, r#"{"all": 1}"#).await, bad(said));
    }
    let (status, answer) = ask(&world, "GET", "release", None, "").await;
    assert_eq!(
        (status, answer),
        (
            404,
            error(
                404,
                "NOT_FOUND",
                "notFound",
                "This emulator does not serve GET /emulator/release"
            )
        )
    );
}
