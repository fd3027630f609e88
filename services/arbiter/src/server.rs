//! The arbiter: one thread, one socket, and the books.
#![forbid(unsafe_code)]

use crate::books::{Action, Books, TenantId};
use crate::frame::{Ask, Contents, FrameError, LISTED, MAX_FRAME, Name, Refusal, Tell, TenantInfo};
use crate::peer::Peer;
use crate::policy::Policy;
use crate::publications::{Attachment, Publications};
use crate::socket::{self, Mode};
use crate::{ArbiterError, DriverCount, failed};
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Gid, chown, flock, statfs};
use rustix::net::{SocketAddrUnix, SocketFlags, accept_with, bind, listen};
use rustix::process::{Signal, geteuid, pidfd_send_signal};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Connections at once, and processes whose connection has ended; with their descriptors they stay below the usual limit of 1,024.
const CONNECTIONS: usize = 400;
/// Time of a connection that is no tenant's. Calls are answered at once.
const GREETING: Duration = Duration::from_secs(30);
/// Packets that wait for one slow reader before its connection is closed.
const UNSENT: usize = 256;
/// Frames of one connection that are read before the next connection has its turn.
const TURN: usize = 16;
/// Longest sleep, so that a wish to stop is seen.
const NAP: Duration = Duration::from_millis(100);
/// The driver is asked what processes have at least this often.
const COUNT: Duration = Duration::from_secs(1);

struct Connection {
    socket: OwnedFd,
    pid: u32,
    uid: u32,
    tenant: Option<TenantId>,
    since: Duration,
    /// Until the first frame says whether it is a tenant.
    pidfd: Option<OwnedFd>,
    unsent: VecDeque<Packet>,
}

/// A packet that waits, with the descriptors that go with it.
struct Packet {
    bytes: Vec<u8>,
    descriptors: Vec<Arc<OwnedFd>>,
    /// Bytes granted by this packet.
    granted: u64,
}

impl Packet {
    fn new(tell: &Tell) -> Self {
        Self { bytes: tell.encode(), descriptors: Vec::new(), granted: 0 }
    }
}

struct Tenant {
    pid: u32,
    uid: u32,
    pidfd: OwnedFd,
    connection: Option<u64>,
    /// The largest quota that the process may give itself: what the policy or an administrator gave it.
    ceiling: u64,
}

/// Divides the memory of one device among the processes that connect.
pub struct Server {
    listener: OwnedFd,
    path: PathBuf,
    /// Held for life: two arbiters of one socket are impossible.
    lock: File,
    policy: Policy,
    books: Books,
    connections: BTreeMap<u64, Connection>,
    tenants: BTreeMap<TenantId, Tenant>,
    publications: Publications,
    /// Asks the driver what processes have; nobody is asked where it is not known.
    count: Option<DriverCount>,
    /// Time at which the driver was asked last.
    counted: Duration,
    next: u64,
    /// True if the listener is not looked at until the next turn: it stays ready where a connection cannot be accepted.
    is_deaf: bool,
    start: Instant,
    buffer: Vec<u8>,
}

impl core::fmt::Debug for Server {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Server")
            .field("path", &self.path)
            .field("books", &self.books)
            .finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A file that stays is recognised as stale by the next arbiter.
        let _ = fs::remove_file(&self.path);
        // Closing the file would not do: a child that another thread has just forked shares the lock until it runs its own program.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Server {
    /// Opens the socket: for its own user alone, or also for a group.
    ///
    /// # Errors
    /// Fails when another arbiter serves the socket, when the path is something else than a socket or on a network file
    /// system, and with the system's error.
    pub fn bind(path: &Path, policy: Policy, group: Option<u32>) -> Result<Self, ArbiterError> {
        check_local(path, file_system)?;
        let lock = lock(path)?;
        remove_stale(path)?;
        let at = |error: io::Error| no_socket(path, error);
        let listener = socket::make(Mode::Polling).map_err(at)?;
        let address = SocketAddrUnix::new(path).map_err(|error| at(error.into()))?;
        // Nobody can connect before it listens, so that the permissions are set in time.
        bind(&listener, &address).map_err(|error| at(error.into()))?;
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(at)?;
        if let Some(group) = group {
            chown(path, None, Some(Gid::from_raw(group))).map_err(|error| at(error.into()))?;
        }
        listen(&listener, 128).map_err(|error| at(error.into()))?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            lock,
            books: Books::new(policy.capacity, policy.patience, policy.overhead),
            policy,
            connections: BTreeMap::new(),
            tenants: BTreeMap::new(),
            publications: Publications::default(),
            count: None,
            counted: Duration::ZERO,
            next: 1,
            is_deaf: false,
            start: Instant::now(),
            buffer: vec![0; MAX_FRAME + 1],
        })
    }

    /// Compares what tenants say with what the driver counts for their processes. One that has more than it says, beyond the policy's `overhead`, for
    /// longer than `patience` is a debtor, and what it has is granted to nobody.
    #[must_use]
    pub fn compared_with(mut self, count: DriverCount) -> Self {
        self.count = Some(count);
        self
    }

    /// Serves until `stop` returns true.
    ///
    /// # Errors
    /// Fails when the system cannot wait for sockets.
    pub fn run(&mut self, stop: impl Fn() -> bool) -> Result<(), ArbiterError> {
        while !stop() {
            let ready = self.wait().map_err(|error| failed(&self.path, &error))?;
            if ready.listener {
                self.accept();
            }
            // Processes that are gone come last: what they sent before still counts.
            ready.connections.into_iter().for_each(|id| self.serve(id));
            ready.gone.into_iter().for_each(|tenant| self.bury(tenant));
            self.end_idle();
            self.count_all();
            let (now, mut actions) = (self.now(), Vec::new());
            self.books.tick(now, &mut actions);
            self.act(&actions);
            let ids: Vec<u64> = self.connections.keys().copied().collect();
            ids.into_iter().for_each(|id| self.flush(id));
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait(&mut self) -> io::Result<Ready> {
        let listeners = usize::from(!core::mem::take(&mut self.is_deaf));
        let mut polled = vec![PollFd::new(&self.listener, PollFlags::IN); listeners];
        for connection in self.connections.values() {
            let out =
                if connection.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            polled.push(PollFd::new(&connection.socket, PollFlags::IN | out));
        }
        polled.extend(self.tenants.values().map(|it| PollFd::new(&it.pidfd, PollFlags::IN)));
        let due = self.books.next_deadline().map(|due| due.saturating_sub(self.now()));
        let nap = due.unwrap_or(NAP).min(NAP).max(Duration::from_millis(1));
        let nap = Timespec::try_from(nap).map_err(io::Error::other)?;
        match poll(&mut polled, Some(&nap)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut is_ready = polled.iter().map(|each| !each.revents().is_empty());
        let listener = listeners > 0 && is_ready.next().unwrap_or(false);
        let readable = self.connections.keys().filter(|_| is_ready.next().unwrap_or(false));
        let connections = readable.copied().collect();
        let gone = self.tenants.keys().filter(|_| is_ready.next().unwrap_or(false));
        Ok(Ready { listener, connections, gone: gone.copied().collect() })
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..TURN {
            let socket = match accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(rustix::io::Errno::WOULDBLOCK) => return,
                Err(_) => return self.is_deaf = true,
            };
            // A process that comes when there is no room, or that cannot be identified, is hung up on.
            let Ok(peer) = Peer::of(&socket) else { continue };
            if !self.has_room(peer.uid) {
                continue;
            }
            let connection = Connection {
                socket,
                pid: peer.pid,
                uid: peer.uid,
                tenant: None,
                since: self.now(),
                pidfd: peer.pidfd,
                unsent: VecDeque::new(),
            };
            self.connections.insert(self.next, connection);
            self.next += 1;
        }
    }

    /// Returns whether one more connection of a user may be kept, after the oldest one that is no tenant's made room for it.
    fn has_room(&mut self, uid: u32) -> bool {
        let kept = |of: &dyn Fn(u32) -> bool| {
            let connections = self.connections.values().filter(|it| of(it.uid)).count();
            let apart = self.tenants.values().filter(|it| it.connection.is_none() && of(it.uid));
            connections + apart.count()
        };
        if kept(&|it| it == uid) >= CONNECTIONS / 2 {
            return false;
        }
        if kept(&|_| true) < CONNECTIONS {
            return true;
        }
        // A tenant greets at once, so that many newer ones stand behind it by the time that it would be the oldest.
        let oldest = self.connections.iter().find(|(_, it)| it.tenant.is_none());
        let oldest = oldest.map(|(id, _)| *id);
        oldest.into_iter().for_each(|id| self.hang_up(id));
        oldest.is_some()
    }

    /// Hangs up on connections that have not become a tenant's in time.
    fn end_idle(&mut self) {
        let now = self.now();
        let is_late = |it: &Connection| it.tenant.is_none() && now >= it.since + GREETING;
        self.connections.retain(|_, it| !is_late(it));
    }

    /// Reads the frames of one connection; an end or a wrong frame closes it.
    fn serve(&mut self, id: u64) {
        for _ in 0..TURN {
            let Some(connection) = self.connections.get(&id) else { return };
            // Those that no frame wants are closed at the end of the turn.
            let mut descriptors = Vec::new();
            let (socket, buffer) = (&connection.socket, &mut *self.buffer);
            let ask = match socket::receive_with(socket, buffer, &mut descriptors) {
                Ok([]) => return self.hang_up(id),
                Ok(packet) => Ask::decode(packet),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.hang_up(id),
            };
            match ask.map(|ask| self.obey(id, ask, descriptors)) {
                Ok(Ok(())) => {}
                Ok(Err(why)) => self.refuse(id, 0, why),
                Err(error) => return self.part(id, error),
            }
        }
    }

    /// Hangs up after a wrong frame. All that a peer of another version reads of an answer is its version, which is what it has to know.
    fn part(&mut self, id: u64, error: FrameError) {
        if matches!(error, FrameError::Version(_)) {
            self.refuse(id, 0, Refusal::Contradiction);
            self.flush(id);
        }
        self.hang_up(id);
    }

    fn obey(&mut self, id: u64, ask: Ask, descriptors: Vec<OwnedFd>) -> Result<(), Refusal> {
        let (now, mut actions) = (self.now(), Vec::new());
        let tenant = self.connections.get(&id).and_then(|connection| connection.tenant);
        let own = tenant.ok_or(Refusal::NoTenant);
        match ask {
            Ask::Hello { held } => self.hello(id, held)?,
            Ask::Take { request, bytes } => {
                self.books.take(own?, request, bytes, now, &mut actions);
            }
            Ask::Give { bytes } => {
                self.books.give(own?, bytes, self.recount(own?), now, &mut actions)?;
            }
            Ask::Answer { press } => self.books.answer(own?, press, now, &mut actions),
            Ask::List => self.list(id),
            Ask::SetQuota { pid, quota } => self.set_quota(id, pid, quota)?,
            Ask::Sleep { pid } => {
                let tenant = self.governed(id, pid)?;
                if self.told(id, Packet::new(&Tell::Done)) {
                    self.books.sleep(tenant, now, &mut actions)?;
                }
            }
            Ask::ListPublications => {
                self.tell(id, &Tell::Publications { publications: self.publications.list() });
            }
            Ask::Publish { name, contents } => self.publish(id, name, contents, descriptors)?,
            Ask::Attach { name } => self.attach(id, name)?,
            Ask::Detach { publication } => {
                let (tenant, _) = self.process(id)?;
                let bytes = self.publications.detach(publication, tenant)?;
                self.books.unpublish(bytes, now, &mut actions);
            }
            Ask::Withdraw { name } => {
                let publication = self.own(id, name)?;
                if self.told(id, Packet::new(&Tell::Done)) {
                    let bytes = self.publications.withdraw(publication);
                    self.books.unpublish(bytes, now, &mut actions);
                }
            }
        }
        self.act(&actions);
        Ok(())
    }

    /// Asks the driver what each tenant has, when it is time to.
    fn count_all(&mut self) {
        let (now, every) = (self.now(), self.policy.patience.min(COUNT));
        let Some(count) = &self.count else { return };
        if self.tenants.is_empty() || now < self.counted + every {
            return;
        }
        let all = count();
        for (tenant, it) in &self.tenants {
            self.books.count(*tenant, all.as_ref().map(|all| bytes_of(all, it.pid).unwrap_or(0)));
        }
        self.counted = now;
    }

    /// Returns the driver's count for a tenant that gave memory back, where a request waits for it.
    fn recount(&self, tenant: TenantId) -> Option<u64> {
        let count = self.count.as_ref().filter(|_| self.books.is_awaited())?;
        Some(bytes_of(&count()?, self.tenants.get(&tenant)?.pid).unwrap_or(0))
    }

    /// Ends the former connection of a process that has closed it and greets again, though its last frames are not read yet: the greeting says
    /// all that the process holds.
    fn end_former(&mut self, id: u64) {
        let former = self.process(id).ok().and_then(|(tenant, _)| self.tenants[&tenant].connection);
        let found = former.and_then(|former| Some((former, self.connections.get(&former)?)));
        let Some((former, connection)) = found else { return };
        let mut polled = [PollFd::new(&connection.socket, PollFlags::empty())];
        let is_polled = poll(&mut polled, Some(&Timespec::default())).is_ok();
        if is_polled && polled[0].revents().contains(PollFlags::HUP) {
            self.hang_up(former);
        }
    }

    /// Makes the peer a tenant, or gives it back the account that its process has.
    fn hello(&mut self, id: u64, held: u64) -> Result<(), Refusal> {
        self.end_former(id);
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let (pid, uid) = (connection.pid, connection.uid);
        if connection.tenant.is_some() {
            return Err(Refusal::Contradiction);
        }
        // Nobody would see its end, nor tell it from the next one.
        if pid == 0 {
            return Err(Refusal::Unseen);
        }
        let known = self.tenants.iter_mut().find(|(_, it)| it.pid == pid && it.uid == uid);
        let (tenant, counted) = match known {
            // One process is one tenant, whose connection is the latest.
            Some((tenant, account)) if account.connection.is_none() => {
                account.connection = Some(id);
                (*tenant, None)
            }
            Some(_) => return Err(Refusal::TooMany),
            None => {
                let processes = self.tenants.values().filter(|it| it.uid == uid).count();
                if processes >= self.policy.processes {
                    return Err(Refusal::TooMany);
                }
                let pidfd = connection.pidfd.take().ok_or(Refusal::Contradiction)?;
                let tenant = TenantId(id);
                let rules = self.policy.rules(uid);
                self.books.join(tenant, rules)?;
                let (connection, ceiling) = (Some(id), rules.quota);
                self.tenants.insert(tenant, Tenant { pid, uid, pidfd, connection, ceiling });
                let count = self.count.as_ref().filter(|_| held > 0).and_then(|count| count());
                (tenant, count.and_then(|all| bytes_of(&all, pid)))
            }
        };
        connection.tenant = Some(tenant);
        let held = self.books.greet(tenant, held, counted);
        let rules = self.books.rules(tenant).ok_or(Refusal::NoTenant)?;
        let (capacity, quota, reserve) = (self.books.capacity(), rules.quota, rules.reserve);
        self.tell(id, &Tell::Limits { capacity, quota, reserve, held });
        Ok(())
    }

    /// Returns the tenant that the process behind a connection is, and its user. Publications come over connections of their own.
    fn process(&self, id: u64) -> Result<(TenantId, u32), Refusal> {
        let connection = self.connections.get(&id).ok_or(Refusal::NoTenant)?;
        let (pid, uid) = (connection.pid, connection.uid);
        let found = self.tenants.iter().find(|(_, it)| it.pid == pid && it.uid == uid);
        found.map(|(tenant, _)| (*tenant, uid)).ok_or(Refusal::NoTenant)
    }

    fn publish(
        &mut self,
        id: u64,
        name: Name,
        contents: Contents,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        let (tenant, uid) = self.process(id)?;
        self.publications.check(uid, name, &contents, descriptors.len())?;
        let published = self.publications.bytes_of(uid).saturating_add(contents.size);
        if published > self.policy.rules(uid).quota {
            return Err(Refusal::OverQuota);
        }
        if self.books.held(tenant) < contents.size {
            return Err(Refusal::Contradiction);
        }
        if self.told(id, Packet::new(&Tell::Done)) {
            self.books.publish(tenant, contents.size)?;
            self.publications.publish(uid, name, contents, descriptors);
        }
        Ok(())
    }

    fn attach(&mut self, id: u64, name: Name) -> Result<(), Refusal> {
        let (tenant, uid) = self.process(id)?;
        let may = |name: &str| self.policy.may_attach(uid, name);
        let Attachment { publication, contents, descriptors } =
            self.publications.attachment(name, uid, may)?;
        let tell = Tell::Attached { publication, contents };
        if self.told(id, Packet { descriptors, ..Packet::new(&tell) }) {
            self.publications.attach(publication, tenant);
        }
        Ok(())
    }

    /// Finds a publication that the peer may withdraw: its user's own, or any if the peer is an administrator.
    fn own(&self, id: u64, name: Name) -> Result<u64, Refusal> {
        let uid = self.connections.get(&id).map(|connection| connection.uid);
        let uid = uid.ok_or(Refusal::Forbidden)?;
        self.publications.own(name, Some(uid).filter(|uid| !is_governor(*uid)))
    }

    /// Sets the quota of a process: as an administrator, or of the peer's own process up to what that was given.
    fn set_quota(&mut self, id: u64, pid: u64, quota: u64) -> Result<(), Refusal> {
        let own = self.process(id).map(|(tenant, _)| tenant);
        let (tenant, ceiling) = match (self.governed(id, pid), own) {
            (Ok(tenant), _) => (tenant, quota),
            (Err(Refusal::Forbidden), Ok(tenant)) => {
                let account = self.tenants.get(&tenant).ok_or(Refusal::NoTenant)?;
                if u64::from(account.pid) != pid || quota > account.ceiling {
                    return Err(Refusal::Forbidden);
                }
                (tenant, account.ceiling)
            }
            (Err(why), _) => return Err(why),
        };
        self.books.check_quota(tenant, quota)?;
        if self.told(id, Packet::new(&Tell::Done)) {
            self.books.set_quota(tenant, quota)?;
            if let Some(account) = self.tenants.get_mut(&tenant) {
                account.ceiling = ceiling;
            }
        }
        Ok(())
    }

    /// Returns a tenant that the peer may give orders about: root's and the arbiter's own user may.
    fn governed(&self, id: u64, pid: u64) -> Result<TenantId, Refusal> {
        if !self.connections.get(&id).is_some_and(|connection| is_governor(connection.uid)) {
            return Err(Refusal::Forbidden);
        }
        let found = self.tenants.iter().find(|(_, tenant)| u64::from(tenant.pid) == pid);
        found.map(|(tenant, _)| *tenant).ok_or(Refusal::NoTenant)
    }

    fn list(&mut self, id: u64) {
        let shares = self.books.shares();
        let info = |(tenant, it): (&TenantId, &Tenant)| {
            let rules = self.books.rules(*tenant)?;
            Some(TenantInfo {
                pid: it.pid.into(),
                uid: it.uid.into(),
                held: self.books.held(*tenant),
                quota: rules.quota,
                reserve: rules.reserve,
                weight: rules.weight.into(),
                priority: rules.priority.into(),
                share: shares.get(tenant).copied().unwrap_or(0),
                owed: self.books.owed(*tenant),
                connected: it.connection.is_some().into(),
            })
        };
        let all: Vec<TenantInfo> = self.tenants.iter().filter_map(info).collect();
        let mut parts = all.chunks(LISTED).peekable();
        if parts.peek().is_none() {
            self.tell(id, &Tell::Tenants { more: false, tenants: Vec::new() });
        }
        while let Some(part) = parts.next() {
            let more = parts.peek().is_some();
            self.tell(id, &Tell::Tenants { more, tenants: part.to_vec() });
        }
    }

    /// Tells tenants what the books decided.
    fn act(&mut self, actions: &[Action]) {
        let mut shares = None;
        for action in actions {
            match *action {
                Action::Grant { tenant, request, bytes } => {
                    let packet = Packet::new(&Tell::Grant { request });
                    self.send_tenant(tenant, Packet { granted: bytes, ..packet });
                }
                Action::Refuse { tenant, request, why } => {
                    let shares = shares.get_or_insert_with(|| self.books.shares());
                    let (free, share) = (self.books.free(), shares.get(&tenant).copied());
                    let share = share.unwrap_or(0);
                    let tell = Tell::Refuse { request, why, free, share };
                    self.send_tenant(tenant, Packet::new(&tell));
                }
                Action::Press { tenant, press, bytes } => {
                    let within = self.policy.patience.as_millis();
                    let within_ms = u64::try_from(within).unwrap_or(u64::MAX);
                    let tell = Tell::Press { press, bytes, within_ms };
                    self.send_tenant(tenant, Packet::new(&tell));
                }
                Action::Overdue { tenant } => self.overdue(tenant),
            }
        }
    }

    fn overdue(&self, tenant: TenantId) {
        if let Some(tenant) = self.tenants.get(&tenant).filter(|_| self.policy.end_debtors) {
            // One that is gone already is what was wanted.
            let _ = pidfd_send_signal(&tenant.pidfd, Signal::KILL);
        }
    }

    fn refuse(&mut self, id: u64, request: u64, why: Refusal) {
        let tenant = self.connections.get(&id).and_then(|connection| connection.tenant);
        let share = tenant.and_then(|tenant| self.books.shares().get(&tenant).copied());
        let (free, share) = (self.books.free(), share.unwrap_or(0));
        self.tell(id, &Tell::Refuse { request, why, free, share });
    }

    fn send_tenant(&mut self, tenant: TenantId, packet: Packet) {
        if let Some(id) = self.tenants.get(&tenant).and_then(|it| it.connection) {
            self.send(id, packet);
        }
    }

    /// Sends the answer to an order before the order is carried out. Returns whether it was sent: a peer that has given up must find nothing changed.
    fn told(&mut self, id: u64, packet: Packet) -> bool {
        self.send(id, packet);
        self.flush(id);
        let is_told = self.connections.get(&id).is_some_and(|it| it.unsent.is_empty());
        if !is_told {
            self.hang_up(id);
        }
        is_told
    }

    fn tell(&mut self, id: u64, tell: &Tell) {
        self.send(id, Packet::new(tell));
    }

    fn send(&mut self, id: u64, packet: Packet) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.unsent.push_back(packet);
        }
    }

    /// Sends what waits. A peer that does not read is hung up on: its bytes stay counted as long as it lives.
    fn flush(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        while let Some(packet) = connection.unsent.front() {
            let descriptors: Vec<_> = packet.descriptors.iter().map(|it| it.as_fd()).collect();
            match socket::post_with(&connection.socket, &packet.bytes, &descriptors) {
                Ok(()) => drop(connection.unsent.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return self.hang_up(id),
            }
        }
        if connection.unsent.len() > UNSENT {
            self.hang_up(id);
        }
    }

    fn hang_up(&mut self, id: u64) {
        let Some(connection) = self.connections.remove(&id) else { return };
        let Some(tenant) = connection.tenant else { return };
        if let Some(account) = self.tenants.get_mut(&tenant) {
            account.connection = None;
        }
        let (now, mut actions) = (self.now(), Vec::new());
        let granted = connection.unsent.iter().map(|packet| packet.granted);
        let granted = granted.fold(0, u64::saturating_add);
        self.books.hang_up(tenant, granted, now, &mut actions);
        self.act(&actions);
    }

    /// Closes the account of a process that is gone. The driver has taken its memory back by then.
    fn bury(&mut self, tenant: TenantId) {
        let Some(gone) = self.tenants.remove(&tenant) else { return };
        if let Some(id) = gone.connection {
            self.connections.remove(&id);
        }
        let (now, mut actions) = (self.now(), Vec::new());
        self.books.leave(tenant, now, &mut actions);
        self.books.unpublish(self.publications.leave(tenant), now, &mut actions);
        self.act(&actions);
    }
}

/// Sockets and processes that are ready.
struct Ready {
    listener: bool,
    connections: Vec<u64>,
    gone: Vec<TenantId>,
}

/// Returns the bytes of a process; `None` for one that the driver does not list. That is a process that has given all back, or one that some
/// drivers never list. Counted as zero, neither has more than it says; but no greeting may be measured against that zero.
fn bytes_of(all: &[(u32, u64)], pid: u32) -> Option<u64> {
    all.iter().find(|(known, _)| *known == pid).map(|(_, bytes)| *bytes)
}

/// Returns whether a user may give orders about others: root and the arbiter's own may.
fn is_governor(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// File systems of several machines: NFS, SMB in three versions, AFS, Ceph, Lustre, GPFS, `BeeGFS`.
const REMOTE: [i128; 9] = [
    0x6969,
    0x517B,
    0xFF53_4D42,
    0xFE53_4D42,
    0x5346_414F,
    0x00C3_6400,
    0x0BD0_0BD0,
    0x4750_4653,
    0x1983_0326,
];

/// Returns what kind of file system a folder is on.
fn file_system(folder: &Path) -> io::Result<i128> {
    // Kinds are numbers of 32 bits, which some systems extend by their sign.
    Ok(i128::from(statfs(folder)?.f_type) & 0xFFFF_FFFF)
}

/// Refuses sockets that other machines see: each machine's arbiter would take the other's socket for a stale one, and tenants can connect on their own
/// machine only.
fn check_local(
    path: &Path,
    file_system: impl Fn(&Path) -> io::Result<i128>,
) -> Result<(), ArbiterError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let kind =
        file_system(folder.unwrap_or(Path::new("."))).map_err(|error| no_socket(path, error))?;
    if REMOTE.contains(&kind) { Err(ArbiterError::Remote(path.to_owned())) } else { Ok(()) }
}

fn no_socket(path: &Path, error: io::Error) -> ArbiterError {
    ArbiterError::Socket { path: path.to_owned(), error }
}

/// Takes the lock of a socket, in a file beside it.
fn lock(path: &Path) -> Result<File, ArbiterError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let beside = PathBuf::from(name);
    let file = File::options().create(true).append(true).open(&beside);
    let file = file.map_err(|error| no_socket(&beside, error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(ArbiterError::Served(path.to_owned())),
        Err(error) => Err(no_socket(&beside, error.into())),
    }
}

/// Removes the socket of an arbiter that is gone: with the lock in hand, there is no other.
fn remove_stale(path: &Path) -> Result<(), ArbiterError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(no_socket(path, error)),
        Ok(about) if about.file_type().is_socket() => {
            fs::remove_file(path).map_err(|error| no_socket(path, error))
        }
        Ok(_) => Err(ArbiterError::Occupied(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_refused_before_anything_is_made() {
        let path = Path::new("/shared/omniheap.sock");
        let kind = |kind: i128| {
            check_local(path, |folder| {
                assert_eq!(folder, Path::new("/shared"));
                Ok(kind)
            })
        };
        for (remote, name) in [(0x6969, "NFS"), (0xFF53_4D42, "CIFS"), (0xFE53_4D42, "SMB 2")] {
            let refused = kind(remote).expect_err(name).to_string();
            assert!(refused.contains("network file system"), "{name}: {refused}");
        }
        // ext4 and tmpfs.
        assert!(kind(0xEF53).is_ok() && kind(0x0102_1994).is_ok());
        let absent = check_local(path, |_| Err(io::ErrorKind::NotFound.into()));
        assert!(matches!(absent, Err(ArbiterError::Socket { .. })), "{absent:?}");
        let here = |folder: &Path| {
            assert_eq!(folder, Path::new("."));
            Ok(0xEF53)
        };
        assert!(check_local(Path::new("omniheap.sock"), here).is_ok());
        assert_ne!(file_system(Path::new("/proc")).ok(), file_system(Path::new("/sys")).ok());
    }

    fn server(name: &str) -> Server {
        let path = std::env::temp_dir().join(format!("omniheap-{name}-{}", std::process::id()));
        let server = Server::bind(&path, Policy::equal(1), None).expect("a socket");
        fs::remove_file(path.with_added_extension("lock")).expect("it was there");
        server
    }

    /// Adds a connection of a user, whose other end is closed.
    fn connected(server: &mut Server, uid: u32, tenant: Option<TenantId>) {
        let since = server.now();
        let (pid, pidfd, unsent) = (1, None, VecDeque::new());
        let socket = socket::make(Mode::Polling).expect("a socket");
        let connection = Connection { socket, pid, uid, tenant, since, pidfd, unsent };
        server.connections.insert(server.next, connection);
        server.next += 1;
    }

    #[test]
    fn a_listener_that_cannot_accept_is_left_alone_for_a_turn() {
        let mut server = server("deaf");
        // One that stays ready and gives nobody, as without free descriptors.
        server.listener = socket::make(Mode::Polling).expect("a socket");
        assert!(server.wait().expect("it waits").listener);
        server.accept();
        assert!(!server.wait().expect("it waits").listener, "there is nobody to hear");
        assert!(server.wait().expect("it waits").listener, "and again");
    }

    #[test]
    fn the_oldest_that_greets_not_makes_room_and_no_user_has_more_than_half() {
        let mut server = server("room");
        connected(&mut server, 1, Some(TenantId(1)));
        (1..CONNECTIONS / 2).for_each(|_| connected(&mut server, 1, None));
        assert!(!server.has_room(1), "it has half of the room");
        assert!(server.has_room(2));
        (0..CONNECTIONS / 2).for_each(|_| connected(&mut server, 2, None));
        assert_eq!(server.connections.len(), CONNECTIONS);
        assert!(server.has_room(3), "two users keep no third one out");
        assert_eq!((server.connections.len(), server.has_room(2)), (CONNECTIONS - 1, false));
        assert!(server.connections.contains_key(&1), "a tenant stays");
        assert!(!server.connections.contains_key(&2), "the oldest of the others went");
    }

    #[test]
    fn processes_whose_connection_ended_take_room_too() {
        let mut server = server("apart");
        for tenant in 0..CONNECTIONS as u64 / 2 {
            let pidfd = socket::make(Mode::Polling).expect("a descriptor");
            let gone = Tenant { pid: 1, uid: 1, pidfd, connection: None, ceiling: 1 };
            server.tenants.insert(TenantId(tenant), gone);
        }
        assert!(!server.has_room(1) && server.has_room(2));
        for user in 2..4 {
            (0..CONNECTIONS / 4).for_each(|_| connected(&mut server, user, Some(TenantId(9))));
        }
        assert!(!server.has_room(4), "all of them are tenants");
    }

    #[test]
    fn who_is_no_tenant_in_time_is_hung_up_on() {
        let mut server = server("idle");
        connected(&mut server, 1, Some(TenantId(1)));
        connected(&mut server, 1, None);
        server.end_idle();
        assert_eq!(server.connections.len(), 2);
        server.start = server.start.checked_sub(GREETING).expect("this machine runs for longer");
        connected(&mut server, 1, None);
        server.end_idle();
        assert_eq!(server.connections.keys().collect::<Vec<_>>(), [&1, &3]);
    }

    #[test]
    fn the_lock_ends_with_the_arbiter_whoever_inherited_its_file() {
        let path = std::env::temp_dir().join(format!("omniheap-lock-{}.sock", std::process::id()));
        let server = Server::bind(&path, Policy::equal(1), None).expect("a socket");
        let inherited = server.lock.try_clone().expect("a descriptor");
        drop(server);
        let next = Server::bind(&path, Policy::equal(1), None);
        assert!(next.is_ok(), "{next:?}");
        drop((next, inherited));
        fs::remove_file(path.with_extension("sock.lock")).expect("it was there");
    }
}
