//! Owns making a sandbox: request, intent, row, node, running. Each step that fails takes back the ones before it.

use super::live::LiveFacts;
use super::{Actor, App, AppError, CreateSandbox, LiveSandbox, SandboxView, TemplateRef, unstoppable};
use crate::cluster::LinkError;
use crate::store::{IdempotencyClaim, Inserted, Refused, SandboxRow};
use cofferdam_audit::{Entry, Event};
use cofferdam_core::limits::{
    ENV_BYTES_MAX, ENV_COUNT_MAX, METADATA_BYTES_MAX, METADATA_COUNT_MAX, TIMEOUT_SECONDS_DEFAULT,
};
use cofferdam_core::secret::Secret;
use cofferdam_core::{ErrorKind, SandboxId, SandboxSpec, State, TemplateInfo};
use cofferdam_policy::Action;
use std::collections::BTreeMap;

/// How long an idempotency key counts, in milliseconds.
const IDEMPOTENCY_MS: u64 = 24 * 3600 * 1000;
/// Longest idempotency key, in bytes.
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// Template when the request names none.
const DEFAULT_TEMPLATE: &str = "base";

impl App {
    /// Makes a sandbox; it is running, and its agent answers, when this returns.
    pub async fn create_sandbox(
        &self,
        actor: &Actor,
        request: CreateSandbox,
    ) -> Result<SandboxView, AppError> {
        let permit = self.permit(actor, Action::CreateSandbox)?;
        let reference = request.template.as_deref().unwrap_or(DEFAULT_TEMPLATE);
        let template = self.resolve_template(&actor.tenant, reference).await?;
        let draft = self.draft(actor, request, &template)?;
        let entry = self.entry(actor, Some(&draft.row.id));
        let intent = self.intent(&permit, &entry, &wish(&draft.row))?;
        let making = Making { app: self.clone(), entry, intent };
        unstoppable(async move { making.run(draft, template).await }).await
    }

    /// The row of the sandbox, if the request is legal.
    fn draft(
        &self,
        actor: &Actor,
        request: CreateSandbox,
        template: &TemplateInfo,
    ) -> Result<Draft, AppError> {
        let resources = request.resources.apply(self.0.settings.resources);
        resources
            .validate()
            .map_err(|e| AppError::Invalid { field: "resources", why: format!("is not legal: {e}") })?;
        check_map("env", &request.env, ENV_COUNT_MAX, ENV_BYTES_MAX)?;
        check_map("metadata", &request.metadata, METADATA_COUNT_MAX, METADATA_BYTES_MAX)?;
        check_env(&request.env)?;
        let seconds = request.timeout_seconds.unwrap_or(TIMEOUT_SECONDS_DEFAULT);
        let seconds = self.check_timeout(seconds, 1)?;
        let now = self.now();
        let claim = request.idempotency.map(|idempotency| IdempotencyClaim {
            key: idempotency.key,
            body_hash: idempotency.body_hash,
            expires_at: now.plus_millis(IDEMPOTENCY_MS),
        });
        if claim.as_ref().is_some_and(|claim| !(1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&claim.key.len())) {
            return Err(AppError::Invalid {
                field: "Idempotency-Key",
                why: "must have 1 to 255 bytes".to_owned(),
            });
        }
        let id = request.id.unwrap_or_else(|| self.new_sandbox_id());
        let identity = request.identity.map(|of| of(&id, &template.id)).unwrap_or_default();
        let mut env = template.env.clone();
        env.extend(request.env);
        env.extend(identity.env);
        let row = SandboxRow {
            id,
            tenant: actor.tenant.clone(),
            template_id: template.id.clone(),
            template_name: template.name.clone(),
            template_digest: template.digest.to_string(),
            default_user: template.default_user.clone(),
            default_workdir: template.default_workdir.clone(),
            kill_wanted: false,
            observed: State::Creating,
            resources,
            env,
            metadata: request.metadata,
            options: request.options,
            access_token: request.secure.then(new_token),
            traffic_token: request.private_ingress.then(new_token),
            started_at: now,
            expires_at: now.plus_millis(seconds * 1000),
            end_reason: None,
            journal_after: 0,
        };
        Ok(Draft { row, files: identity.files, claim })
    }

    /// A life span within its bounds.
    pub(super) fn check_timeout(&self, seconds: u64, min: u64) -> Result<u64, AppError> {
        let max = self.0.settings.timeout_seconds_max;
        if (min..=max).contains(&seconds) {
            return Ok(seconds);
        }
        let why = format!("must be between {min} and {max} seconds, got {seconds}");
        Err(AppError::Invalid { field: "timeout", why })
    }
}

/// What is to be stored.
struct Draft {
    row: SandboxRow,
    files: BTreeMap<String, String>,
    claim: Option<IdempotencyClaim>,
}

/// A sandbox on its way.
struct Making {
    app: App,
    entry: Entry,
    intent: u64,
}

impl Making {
    async fn run(self, draft: Draft, template: TemplateInfo) -> Result<SandboxView, AppError> {
        let result = self.insert(draft, template).await;
        match &result {
            Ok(_) => {}
            Err(error) => {
                let why = error.public();
                let failed = Event::SandboxCreateFailed { intent: self.intent, kind: error.kind(), why };
                self.app.outcome(&self.entry, &failed);
            }
        }
        result
    }

    async fn insert(&self, draft: Draft, template: TemplateInfo) -> Result<SandboxView, AppError> {
        let mut row = draft.row;
        row.journal_after = self.intent - 1;
        let live = LiveSandbox::new(facts(&row), State::Creating, row.expires_at);
        let _guard = Guard::new(self.app.clone(), row.id.clone());
        let inserted = self.app.0.store.insert_sandbox(row.clone(), draft.claim).await?;
        match inserted {
            Ok(Inserted::New) => {}
            Ok(Inserted::Earlier(id)) => return self.app.view(&row.tenant, &id).await,
            Err(Refused::Quota(exceeded)) => return Err(exceeded.into()),
            Err(Refused::Mismatch) => return Err(AppError::IdempotencyMismatch),
            Err(Refused::InFlight) => return Err(AppError::IdempotencyInFlight),
        }
        self.app.0.registry.insert(live.clone());
        match self.launch(&row, (template, draft.files), &live).await {
            Ok(()) => Ok(SandboxView { state: State::Running, started_at: row.started_at, ..row.into() }),
            Err(error) => {
                self.take_back(&row.id, &error).await;
                Err(error)
            }
        }
    }

    async fn launch(
        &self,
        row: &SandboxRow,
        (template, files): (TemplateInfo, BTreeMap<String, String>),
        live: &LiveSandbox,
    ) -> Result<(), AppError> {
        let spec = SandboxSpec {
            id: row.id.clone(),
            tenant: row.tenant.clone(),
            template: template.id,
            digest: template.digest,
            resources: row.resources,
            env: row.env.clone(),
            files,
            hostname: row.id.to_string(),
            expires_at: row.expires_at,
        };
        self.app.0.link.create(spec).await.map_err(refused_by_node)?;
        if !self.app.0.store.sandbox_started(row.id.clone(), row.started_at).await? {
            return Err(AppError::SandboxEnded(row.id.clone()));
        }
        live.started();
        self.app.outcome(&self.entry, &Event::SandboxCreated { intent: self.intent });
        Ok(())
    }

    /// Nothing of the sandbox may stay. What cannot be done now is done when the node is next compared with the rows.
    async fn take_back(&self, id: &SandboxId, error: &AppError) {
        self.app.0.registry.end(id);
        let (now, reason) = (self.app.now(), format!("not started: {}", error.public()));
        let ended = self.app.0.store.sandbox_ended(id.clone(), State::Failed, reason, now).await;
        let released = self.app.0.store.release_claim(id.clone()).await;
        for failed in [ended.map(|_| ()), released].into_iter().filter_map(Result::err) {
            tracing::error!(sandbox = %id, error = &failed as &dyn std::error::Error, "end a failed sandbox");
        }
        if let Err(error) = self.app.0.link.kill(id.clone()).await {
            tracing::warn!(sandbox = %id, error = &error as &dyn std::error::Error, "kill a failed sandbox");
        }
    }
}

/// Marks a sandbox as being made by this process, for as long as it lives.
struct Guard {
    app: App,
    id: SandboxId,
}

impl Guard {
    fn new(app: App, id: SandboxId) -> Self {
        app.being_made().insert(id.clone());
        Self { app, id }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.app.being_made().remove(&self.id);
    }
}

fn wish(row: &SandboxRow) -> Event {
    Event::SandboxCreateRequested {
        template: row.template_name.clone(),
        digest: row.template_digest.clone(),
        resources: row.resources,
        env_names: row.env.keys().cloned().collect(),
        expires_at: row.expires_at,
    }
}

/// What of a row does not change while the sandbox lives.
pub(super) fn facts(row: &SandboxRow) -> LiveFacts {
    LiveFacts {
        id: row.id.clone(),
        tenant: row.tenant.clone(),
        template: TemplateRef {
            id: row.template_id.clone(),
            name: row.template_name.clone(),
            digest: row.template_digest.clone(),
            default_user: row.default_user.clone(),
            default_workdir: row.default_workdir.clone(),
        },
        resources: row.resources,
        env: row.env.clone(),
        access_token: row.access_token.clone(),
        traffic_token: row.traffic_token.clone(),
        options: row.options.clone(),
    }
}

fn refused_by_node(error: LinkError) -> AppError {
    match error {
        LinkError::Failed(failure) if failure.kind == ErrorKind::ResourceExhausted => {
            AppError::NoCapacity(failure)
        }
        LinkError::TooLarge { bytes } => {
            AppError::Invalid { field: "env", why: format!("is too large ({bytes} bytes in all)") }
        }
        other => other.into(),
    }
}

fn new_token() -> Secret {
    let entropy: [u8; 20] = rand::random();
    Secret::new(format!("ea_{}", hex::encode(entropy)))
}

fn check_map(
    field: &'static str,
    map: &BTreeMap<String, String>,
    count_max: usize,
    bytes_max: usize,
) -> Result<(), AppError> {
    let bytes: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    if map.len() > count_max {
        return Err(AppError::Invalid {
            field,
            why: format!("has {} entries, at most {count_max}", map.len()),
        });
    }
    if bytes > bytes_max {
        return Err(AppError::Invalid { field, why: format!("has {bytes} bytes, at most {bytes_max}") });
    }
    Ok(())
}

fn check_env(env: &BTreeMap<String, String>) -> Result<(), AppError> {
    let bad = |(name, value): &(&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    match env.iter().find(bad) {
        None => Ok(()),
        Some((name, _)) => {
            Err(AppError::Invalid { field: "env", why: format!("has an illegal entry {name:?}") })
        }
    }
}
