//! Errors in Google's JSON shape.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::catalog::CatalogError;
use crate::description::Invalid;
use crate::query::QueryError;
use crate::schema::SchemaError;

/// A refused call: HTTP status, Google's reason, and the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    /// HTTP status.
    pub(crate) code: u16,
    /// Google's word for it, such as `notFound`; clients decide on it.
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) message: String,
}

impl ApiError {
    /// 400 `invalid`.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, "invalid", message)
    }

    /// 404 `notFound`, for what the catalog does not hold (jobs, paths).
    pub(crate) fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(404, "notFound", format!("Not found: {what}"))
    }

    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
        }
    }

    /// The entry of a failed job's `status.errors`.
    pub(crate) fn proto(&self) -> Value {
        json!({ "reason": self.reason, "message": self.message })
    }

    fn status(&self) -> &'static str {
        match self.code {
            400 | 413 => "INVALID_ARGUMENT",
            403 => "PERMISSION_DENIED",
            404 => "NOT_FOUND",
            409 => "ALREADY_EXISTS",
            412 => "FAILED_PRECONDITION",
            401 => "UNAUTHENTICATED",
            501 => "UNIMPLEMENTED",
            503 => "UNAVAILABLE",
            _ => "INTERNAL",
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut error = json!({ "message": self.message, "domain": "global", "reason": self.reason });
        if self.code == 412 {
            error["locationType"] = "header".into();
            error["location"] = "If-Match".into();
        }
        let body = json!({
            "error": {
                "code": self.code,
                "message": self.message,
                "errors": [error],
                "status": self.status(),
            }
        });
        (status, axum::Json(body)).into_response()
    }
}

impl From<CatalogError> for ApiError {
    fn from(error: CatalogError) -> Self {
        let message = error.to_string();
        match error {
            CatalogError::AlreadyExists(_) => Self::new(409, "duplicate", message),
            CatalogError::NotFound(_) => Self::new(404, "notFound", message),
            CatalogError::InUse(_) => Self::new(400, "resourceInUse", message),
            CatalogError::InvalidName { .. }
            | CatalogError::InvalidSchema(_)
            | CatalogError::WrongColumns(_) => Self::invalid(message),
            CatalogError::NotKept(_) => Self::new(500, "internalError", message),
        }
    }
}

impl From<SchemaError> for ApiError {
    fn from(error: SchemaError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<Invalid> for ApiError {
    fn from(error: Invalid) -> Self {
        Self::invalid(error.0)
    }
}

impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> Self {
        let error = match error {
            QueryError::Catalog(error) => return error.into(),
            other => other,
        };
        let (code, reason) = match error {
            QueryError::NotFound { .. } => (404, "notFound"),
            QueryError::Syntax(_) | QueryError::Invalid(_) => (400, "invalidQuery"),
            QueryError::Unqualified(_) | QueryError::Catalog(_) => (400, "invalid"),
            QueryError::TimedOut => (400, "timeout"),
            QueryError::TooLarge => (403, "responseTooLarge"),
            QueryError::Resources(_) => (400, "resourcesExceeded"),
            QueryError::Internal(_) => (500, "internalError"),
        };
        Self::new(code, reason, error.to_string())
    }
}
