//! Owns the file system service: each call becomes one operation of the agent.

use super::entry::info;
use super::session::{Session, keepalive};
use super::watch::{Watched, Watchers, Watching};
use crate::api::e2b::wire::filesystem as wire;
use crate::app::AppError;
use connectrpc::{ConnectError, RequestContext, Response, ServiceRequest, ServiceResult, ServiceStream};
use tokio::time::Instant;

/// The service.
pub(crate) struct FilesystemService {
    /// The watchers that clients poll.
    pub(crate) watchers: Watchers,
}

async fn answer<T>(session: &Session, outcome: Result<T, AppError>) -> Result<T, ConnectError> {
    match outcome {
        Ok(value) => Ok(value),
        Err(error) => Err(session.refuse(error).await),
    }
}

#[expect(refining_impl_trait, reason = "the messages themselves are what the service answers")]
impl wire::Filesystem for FilesystemService {
    async fn stat(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::StatRequest>,
    ) -> ServiceResult<wire::StatResponse> {
        let session = Session::of(&ctx)?;
        let entry = answer(&session, session.agent.stat(session.path(request.path)).await).await?;
        Response::ok(wire::StatResponse { entry: info(entry).into(), ..Default::default() })
    }

    async fn make_dir(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::MakeDirRequest>,
    ) -> ServiceResult<wire::MakeDirResponse> {
        let session = Session::of(&ctx)?;
        let entry = answer(&session, session.agent.make_dir(session.path(request.path)).await).await?;
        Response::ok(wire::MakeDirResponse { entry: info(entry).into(), ..Default::default() })
    }

    async fn r#move(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::MoveRequest>,
    ) -> ServiceResult<wire::MoveResponse> {
        let session = Session::of(&ctx)?;
        let source = session.path(request.source);
        let entry =
            answer(&session, session.agent.rename(source, request.destination.to_owned()).await).await?;
        Response::ok(wire::MoveResponse { entry: info(entry).into(), ..Default::default() })
    }

    async fn list_dir(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::ListDirRequest>,
    ) -> ServiceResult<wire::ListDirResponse> {
        let session = Session::of(&ctx)?;
        let listed = session.agent.list_dir(session.path(request.path), request.depth.max(1)).await;
        let entries = answer(&session, listed).await?.into_iter().map(info).collect();
        Response::ok(wire::ListDirResponse { entries, ..Default::default() })
    }

    async fn remove(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::RemoveRequest>,
    ) -> ServiceResult<wire::RemoveResponse> {
        let session = Session::of(&ctx)?;
        answer(&session, session.agent.remove(session.path(request.path)).await).await?;
        Response::ok(wire::RemoveResponse::default())
    }

    async fn watch_dir(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::WatchDirRequest>,
    ) -> ServiceResult<ServiceStream<wire::WatchDirResponse>> {
        let session = Session::of(&ctx)?;
        let watcher = session.agent.watch(session.path(request.path), request.recursive).await;
        let watcher = answer(&session, watcher).await?;
        let watched =
            Watched { session, path: request.path.to_owned(), include_entry: request.include_entry };
        let deadline = ctx.deadline().map(Instant::from_std);
        let watching = Watching { watched, watcher, keepalive: keepalive(&ctx), deadline };
        Ok(Response::stream(watching.events()))
    }

    async fn create_watcher(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::CreateWatcherRequest>,
    ) -> ServiceResult<wire::CreateWatcherResponse> {
        let session = Session::of(&ctx)?;
        let watcher = session.agent.watch(session.path(request.path), request.recursive).await;
        let watcher = answer(&session, watcher).await?;
        let watched =
            Watched { session, path: request.path.to_owned(), include_entry: request.include_entry };
        let watcher_id = self.watchers.add(watched, watcher)?;
        Response::ok(wire::CreateWatcherResponse { watcher_id, ..Default::default() })
    }

    async fn get_watcher_events(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::GetWatcherEventsRequest>,
    ) -> ServiceResult<wire::GetWatcherEventsResponse> {
        let session = Session::of(&ctx)?;
        let events = self.watchers.take(&session.agent.sandbox().id, request.watcher_id).await?;
        Response::ok(wire::GetWatcherEventsResponse { events, ..Default::default() })
    }

    async fn remove_watcher(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, wire::RemoveWatcherRequest>,
    ) -> ServiceResult<wire::RemoveWatcherResponse> {
        let session = Session::of(&ctx)?;
        self.watchers.remove(&session.agent.sandbox().id, request.watcher_id)?;
        Response::ok(wire::RemoveWatcherResponse::default())
    }
}
