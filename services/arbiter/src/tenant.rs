//! A process's side of the connection.
#![forbid(unsafe_code)]

use crate::frame::{Ask, FrameError, MAX_FRAME, PublicationInfo, Refusal, Tell, TenantInfo};
use crate::socket;
use crate::{ArbiterError, OnPress, Order, PATIENCE, failed};
use core::panic::AssertUnwindSafe;
use omniheap_seam::lock;
use rustix::net::{Shutdown, shutdown};
use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

/// This process as a tenant of an arbiter.
///
/// A process is one tenant: [`Tenant::shared`] returns the same one for the same socket. A connection that breaks is made anew by the
/// next request, which tells the arbiter what is held.
#[derive(Debug)]
pub struct Tenant {
    path: PathBuf,
    /// The process that connected; a forked child is another one.
    process: u32,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    on_press: Mutex<Vec<(u64, OnPress)>>,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared").field("held", &lock(&self.state).held).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    socket: Option<Arc<OwnedFd>>,
    /// True if the reading thread is about to hang up.
    is_ended: bool,
    /// Requests that wait: their bytes, and their answers once they are there.
    requests: HashMap<u64, (u64, Option<Result<(), Refusal>>)>,
    next: u64,
    held: u64,
    /// Bytes that the last greeting said.
    said: u64,
    /// Bytes that are held and that the arbiter did not believe. They are given back without it, and before the others.
    unbooked: u64,
    /// Bytes given back since the greeting, while its answer is not there.
    late: u64,
    /// Publications of which only the arbiter may know whether they took place.
    handing_over: u32,
    quota: Option<u64>,
    /// Reason why the arbiter did not accept this process.
    unwelcome: Option<Refusal>,
    /// Reason why its answer could not be read.
    unread: Option<FrameError>,
}

impl Tenant {
    /// Connects this process to the arbiter at a socket, or returns the connection that it has.
    ///
    /// # Errors
    /// Fails when nobody listens there, or the arbiter refuses this process.
    pub fn shared(path: &Path) -> Result<Arc<Self>, ArbiterError> {
        static ALL: Mutex<Vec<Weak<Tenant>>> = Mutex::new(Vec::new());
        let mut all = lock(&ALL);
        all.retain(|tenant| tenant.strong_count() > 0);
        let mut known = all.iter().filter_map(Weak::upgrade);
        if let Some(known) = known.find(|it| it.path == path && it.process == std::process::id()) {
            return Ok(known);
        }
        let tenant = Arc::new(Self::connect(path)?);
        all.push(Arc::downgrade(&tenant));
        Ok(tenant)
    }

    fn connect(path: &Path) -> Result<Self, ArbiterError> {
        let shared =
            Shared { state: Mutex::default(), changed: Condvar::new(), on_press: Mutex::default() };
        let process = std::process::id();
        let tenant = Self { path: path.to_owned(), process, shared: Arc::new(shared) };
        drop(tenant.link(lock(&tenant.shared.state))?);
        Ok(tenant)
    }

    /// Returns the bytes that the arbiter has granted and that were not given back.
    #[must_use]
    pub fn held(&self) -> u64 {
        lock(&self.shared.state).held
    }

    /// Returns whether this is the process that connected.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Calls `on_press` when the arbiter asks for memory, on a thread of its own, until the guard is dropped.
    pub fn on_press(self: &Arc<Self>, on_press: OnPress) -> Attending {
        let number = {
            let mut state = lock(&self.shared.state);
            state.next += 1;
            state.next
        };
        lock(&self.shared.on_press).push((number, on_press));
        Attending { tenant: Arc::clone(self), number }
    }

    /// Asks for bytes before they are taken from the driver; waits for the answer.
    ///
    /// # Errors
    /// [`ArbiterError::Refused`]; [`ArbiterError::Forked`] in a forked child; [`ArbiterError::Silent`] where no answer comes in time; what [`Tenant::shared`] returns where the connection
    /// has to be made anew.
    pub fn take(&self, bytes: u64) -> Result<(), ArbiterError> {
        // Before the lock: a thread that the child does not have may hold it.
        if !self.is_own() {
            return Err(ArbiterError::Forked);
        }
        let mut state = self.link(lock(&self.shared.state))?;
        let lost = || ArbiterError::Lost(self.path.clone());
        let socket = state.socket.clone().ok_or_else(lost)?;
        state.next += 1;
        let request = state.next;
        let mut state = self.send(state, &Ask::Take { request, bytes })?;
        state.requests.insert(request, (bytes, None));
        let mut is_late = false;
        // A connection that another thread made meanwhile knows nothing of the request.
        while state.is_current(&socket) && matches!(state.requests.get(&request), Some((_, None))) {
            let waited = self.shared.changed.wait_timeout(state, PATIENCE);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            if timeout.timed_out() && state.is_current(&socket) {
                is_late = true;
                state.end();
            }
        }
        let silent = || if is_late { ArbiterError::Silent(self.path.clone()) } else { lost() };
        let answer = state.requests.remove(&request).and_then(|(_, answer)| answer);
        answer.ok_or_else(silent)?.map_err(ArbiterError::Refused)
    }

    /// Says that bytes were returned to the driver. An arbiter that is gone learns of it when it is back. In a forked child nothing changes: the
    /// bytes are its parent's.
    pub fn give(&self, bytes: u64) {
        if !self.is_own() {
            return;
        }
        let mut state = lock(&self.shared.state);
        state.held = state.held.saturating_sub(bytes);
        if state.socket.is_some() && state.quota.is_some() {
            drop(self.give_booked(state, bytes));
        } else if state.socket.is_some() {
            state.late = state.late.saturating_add(bytes);
        }
    }

    /// Tells the arbiter of bytes that were given back, as far as it believes that they were held.
    fn give_booked<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        bytes: u64,
    ) -> Result<MutexGuard<'a, State>, ArbiterError> {
        let unbooked = state.unbooked.min(bytes);
        state.unbooked -= unbooked;
        let bytes = bytes - unbooked;
        if bytes > 0 { self.send(state, &Ask::Give { bytes }) } else { Ok(state) }
    }

    /// Runs a call that makes the arbiter take bytes over. Nobody greets meanwhile: it is not known how many bytes are held.
    pub(crate) fn hand_over<E>(
        &self,
        bytes: u64,
        call: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        lock(&self.shared.state).handing_over += 1;
        let made = call();
        let mut state = lock(&self.shared.state);
        state.handing_over -= 1;
        if made.is_ok() {
            state.held = state.held.saturating_sub(bytes);
        }
        drop(state);
        self.shared.changed.notify_all();
        made
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes sure that there is a connection over which the arbiter has welcomed this process.
    fn link<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>, ArbiterError> {
        let must_wait = |state: &mut State| {
            state.is_ended || (state.socket.is_none() && state.handing_over > 0)
        };
        let former = self.shared.changed.wait_while(state, must_wait);
        let mut state = former.unwrap_or_else(PoisonError::into_inner);
        if state.socket.is_none() {
            let socket = socket::open(&self.path).map_err(|error| failed(&self.path, &error))?;
            let socket = Arc::new(socket);
            self.listen(&socket).map_err(|error| failed(&self.path, &error))?;
            state.socket = Some(socket);
            (state.quota, state.unwelcome, state.unread) = (None, None, None);
            (state.said, state.late) = (state.held, 0);
            let hello = Ask::Hello { held: state.said };
            state = self.send(state, &hello)?;
        }
        while state.quota.is_none() && state.unwelcome.is_none() && state.socket.is_some() {
            let waited = self.shared.changed.wait_timeout(state, PATIENCE);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            if timeout.timed_out() {
                state.hang_up();
                return Err(ArbiterError::Silent(self.path.clone()));
            }
        }
        if let Some(why) = state.unwelcome {
            state.hang_up();
            return Err(ArbiterError::Refused(why));
        }
        if state.socket.is_none() {
            return Err(lost(&self.path, state.unread));
        }
        let late = core::mem::take(&mut state.late);
        self.give_booked(state, late)
    }

    fn send<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        ask: &Ask,
    ) -> Result<MutexGuard<'a, State>, ArbiterError> {
        let lost = || ArbiterError::Lost(self.path.clone());
        let socket = state.socket.clone().ok_or_else(lost)?;
        if socket::post(&socket, &ask.encode()).is_err() {
            state.end();
            return Err(lost());
        }
        Ok(state)
    }

    /// Starts the threads of a connection; both end with it.
    fn listen(&self, socket: &Arc<OwnedFd>) -> io::Result<()> {
        let (presses, pressed) = channel();
        let (shared, link) = (Arc::clone(&self.shared), Arc::clone(socket));
        let read = move || shared.read(&link, &presses);
        thread::Builder::new().name("omniheap-arbiter".into()).spawn(read)?;
        let (shared, link) = (Arc::clone(&self.shared), Arc::clone(socket));
        let press = move || shared.answer_presses(&link, &pressed);
        thread::Builder::new().name("omniheap-press".into()).spawn(press)?;
        Ok(())
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        // A forked child must not end the connection of its parent.
        if self.is_own() {
            lock(&self.shared.state).hang_up();
        }
    }
}

impl State {
    fn hang_up(&mut self) {
        self.is_ended = false;
        if let Some(socket) = self.socket.take() {
            // The thread that reads it sees its end.
            let _ = shutdown(&socket, Shutdown::Both);
        }
    }

    /// Shuts the connection down for receiving. The reading thread first handles everything sent before, then hangs up: both sides agree on which
    /// answers were received.
    fn end(&mut self) {
        if let Some(socket) = &self.socket {
            self.is_ended = true;
            let _ = shutdown(socket, Shutdown::Both);
        }
    }

    fn is_current(&self, socket: &Arc<OwnedFd>) -> bool {
        self.socket.as_ref().is_some_and(|own| Arc::ptr_eq(own, socket))
    }
}

impl Shared {
    /// Reads what the arbiter tells, until the connection ends.
    fn read(&self, socket: &Arc<OwnedFd>, presses: &Sender<(u64, u64)>) {
        let mut buffer = vec![0; MAX_FRAME + 1];
        loop {
            let tell = match socket::receive(socket, &mut buffer) {
                Ok([]) => break,
                Ok(packet) => Tell::decode(packet),
                Err(_) => break,
            };
            match tell {
                Ok(Tell::Press { press, bytes, .. }) => drop(presses.send((press, bytes))),
                Ok(tell) => self.heard(socket, &tell),
                Err(error) => {
                    let mut state = lock(&self.state);
                    if state.is_current(socket) {
                        state.unread = Some(error);
                    }
                    break;
                }
            }
        }
        let mut state = lock(&self.state);
        if state.is_current(socket) {
            state.hang_up();
        }
        drop(state);
        self.changed.notify_all();
    }

    fn heard(&self, socket: &Arc<OwnedFd>, tell: &Tell) {
        let mut state = lock(&self.state);
        match *tell {
            // The arbiter was told anew what is held.
            _ if !state.is_current(socket) => {}
            Tell::Limits { quota, held, .. } => {
                state.unbooked = state.said.saturating_sub(held);
                state.quota = Some(quota);
            }
            Tell::Refuse { request: 0, why, .. } if state.quota.is_none() => {
                state.unwelcome = Some(why);
            }
            Tell::Grant { request } => state.settle(request, Ok(())),
            Tell::Refuse { request, why, .. } => state.settle(request, Err(why)),
            _ => {}
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Runs the callbacks for each press, then answers it.
    fn answer_presses(&self, socket: &OwnedFd, pressed: &Receiver<(u64, u64)>) {
        while let Ok((press, bytes)) = pressed.recv() {
            let callbacks: Vec<OnPress> =
                lock(&self.on_press).iter().map(|(_, each)| Arc::clone(each)).collect();
            for callback in callbacks {
                // The panic was printed. Answer all the same: a process that does not answer becomes a debtor.
                let _ = catch_unwind(AssertUnwindSafe(|| callback(bytes)));
            }
            if socket::post(socket, &Ask::Answer { press }.encode()).is_err() {
                return;
            }
        }
    }
}

impl State {
    /// Notes the answer to a request. What is granted is held from now on, also where another thread connects before the one that asked
    /// goes on.
    fn settle(&mut self, request: u64, answer: Result<(), Refusal>) {
        if let Some((bytes, waiting)) = self.requests.get_mut(&request) {
            *waiting = Some(answer);
            self.held = self.held.saturating_add(if answer.is_ok() { *bytes } else { 0 });
        }
    }
}

/// Guard: a callback answers the arbiter's presses until it is dropped.
#[derive(Debug)]
#[must_use = "presses are answered only while it lives"]
pub struct Attending {
    tenant: Arc<Tenant>,
    number: u64,
}

impl Drop for Attending {
    fn drop(&mut self) {
        lock(&self.tenant.shared.on_press).retain(|(number, _)| *number != self.number);
    }
}

/// Returns the tenants of the arbiter at a socket.
///
/// # Errors
/// Fails when nobody listens there, or the answer is not one; [`ArbiterError::Silent`] where none comes in time.
pub fn tenants(path: &Path) -> Result<Vec<TenantInfo>, ArbiterError> {
    let (asked, mut all) = (Asked::new(path, &Ask::List, &[])?, Vec::new());
    loop {
        match asked.hear()?.0 {
            Tell::Tenants { more, tenants } => {
                all.extend(tenants);
                if !more {
                    return Ok(all);
                }
            }
            other => return Err(asked.unexpected(&other)),
        }
    }
}

/// Returns what is published at the arbiter of a socket.
///
/// # Errors
/// As for [`tenants`].
pub fn publications(path: &Path) -> Result<Vec<PublicationInfo>, ArbiterError> {
    let asked = Asked::new(path, &Ask::ListPublications, &[])?;
    match asked.hear()?.0 {
        Tell::Publications { publications } => Ok(publications),
        other => Err(asked.unexpected(&other)),
    }
}

/// Gives an order to the arbiter at a socket.
///
/// # Errors
/// As for [`tenants`]; [`ArbiterError::Refused`] with `Forbidden` or `NoTenant`. A failed order is not carried out later.
pub fn order(path: &Path, order: Order) -> Result<(), ArbiterError> {
    let ask = match order {
        Order::SetQuota { pid, quota } => Ask::SetQuota { pid: pid.into(), quota },
        Order::Sleep { pid } => Ask::Sleep { pid: pid.into() },
        Order::Withdraw { name } => Ask::Withdraw { name },
    };
    Asked::new(path, &ask, &[])?.done()
}

/// A call to the arbiter over a connection of its own.
pub(crate) struct Asked<'a> {
    path: &'a Path,
    socket: OwnedFd,
}

impl<'a> Asked<'a> {
    /// Connects and sends the frame.
    pub(crate) fn new(
        path: &'a Path,
        ask: &Ask,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Self, ArbiterError> {
        let open = || {
            let socket = socket::open(path)?;
            socket::limit(&socket)?;
            socket::post_with(&socket, &ask.encode(), descriptors)?;
            Ok(socket)
        };
        let socket = open().map_err(|error| failed(path, &error))?;
        Ok(Self { path, socket })
    }

    /// Waits for the answer and its descriptors. After the time limit, shuts the connection down and reads once more: an answer sent before that
    /// counts, because the arbiter acts only on calls that it could answer.
    pub(crate) fn hear(&self) -> Result<(Tell, Vec<OwnedFd>), ArbiterError> {
        match self.receive() {
            Ok(heard) => heard.map_err(|error| lost(self.path, Some(error))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let _ = shutdown(&self.socket, Shutdown::Both);
                let heard = self.receive().ok().and_then(Result::ok);
                heard.ok_or_else(|| ArbiterError::Silent(self.path.to_owned()))
            }
            Err(error) => Err(failed(self.path, &error)),
        }
    }

    /// Waits for an order to be carried out.
    pub(crate) fn done(&self) -> Result<(), ArbiterError> {
        match self.hear()?.0 {
            Tell::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Turns an unexpected answer into an error.
    pub(crate) fn unexpected(&self, tell: &Tell) -> ArbiterError {
        match tell {
            Tell::Refuse { why, .. } => ArbiterError::Refused(*why),
            _ => ArbiterError::Lost(self.path.to_owned()),
        }
    }

    /// Receives one answer. The empty packet at the end of a connection is malformed, too.
    fn receive(&self) -> io::Result<Result<(Tell, Vec<OwnedFd>), FrameError>> {
        let (mut buffer, mut descriptors) = (vec![0; MAX_FRAME + 1], Vec::new());
        let packet = socket::receive_with(&self.socket, &mut buffer, &mut descriptors)?;
        Ok(Tell::decode(packet).map(|tell| (tell, descriptors)))
    }
}

/// Says why there is no answer: the connection ended, or the arbiter speaks another version.
fn lost(path: &Path, unread: Option<FrameError>) -> ArbiterError {
    match unread {
        Some(error @ FrameError::Version(_)) => ArbiterError::Version(path.to_owned(), error),
        Some(FrameError::Malformed) | None => ArbiterError::Lost(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Mode;
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
        socketpair,
    };

    /// A tenant of an arbiter that welcomes everyone and answers nothing else; `test` gets the first request of each connection.
    fn with_tenant(name: &str, test: impl FnOnce(&Tenant, &Receiver<(OwnedFd, Ask)>)) {
        let path = std::env::temp_dir().join(format!("omniheap-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = socket::make(Mode::Waiting).expect("a socket");
        bind(&listener, &SocketAddrUnix::new(&path).expect("short")).expect("a path");
        listen(&listener, 8).expect("a socket");
        let (heard, asked) = channel();
        thread::spawn(move || {
            while let Ok(socket) = accept_with(&listener, SocketFlags::CLOEXEC) {
                let mut buffer = vec![0; MAX_FRAME + 1];
                let greeting = socket::receive(&socket, &mut buffer).expect("a greeting");
                let Ok(Ask::Hello { held }) = Ask::decode(greeting) else { panic!("no greeting") };
                // More than so much it does not believe.
                let held = held.min(60);
                let limits = Tell::Limits { capacity: 1 << 30, quota: 1 << 30, reserve: 0, held };
                socket::post(&socket, &limits.encode()).expect("it listens");
                let heard = heard.clone();
                thread::spawn(move || {
                    let packet = socket::receive(&socket, &mut buffer).unwrap_or_default();
                    if let Ok(ask) = Ask::decode(packet) {
                        let _ = heard.send((socket, ask));
                    }
                });
            }
        });
        test(&Tenant::connect(&path).expect("welcome"), &asked);
        let _ = std::fs::remove_file(&path);
    }

    #[test]
    fn an_arbiter_of_another_version_is_called_that() {
        let path = std::env::temp_dir().join(format!("omniheap-older-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = socket::make(Mode::Waiting).expect("a socket");
        bind(&listener, &SocketAddrUnix::new(&path).expect("short")).expect("a path");
        listen(&listener, 8).expect("a socket");
        thread::spawn(move || {
            while let Ok(socket) = accept_with(&listener, SocketFlags::CLOEXEC) {
                let mut buffer = vec![0; MAX_FRAME + 1];
                socket::receive(&socket, &mut buffer).expect("a question");
                let mut answer = Tell::Done.encode();
                answer[4] = 1;
                socket::post(&socket, &answer).expect("it listens");
            }
        });
        let said = [Tenant::connect(&path).map(drop), tenants(&path).map(drop)];
        for said in said.map(|said| said.expect_err("another version").to_string()) {
            let why = "protocol version 1, not 2; use the same omniheap on both sides";
            assert_eq!(said, format!("{}: {why}", path.display()));
        }
        let _ = std::fs::remove_file(&path);
    }

    #[test]
    fn a_request_is_lost_with_its_connection_also_where_there_is_another_one_by_then() {
        with_tenant("lost", |tenant, asked| {
            thread::scope(|scope| {
                let taken = scope.spawn(|| tenant.take(100));
                let _first = asked.recv().expect("it asks");
                let mut state = lock(&tenant.shared.state);
                state.hang_up();
                drop(tenant.link(state).expect("welcome again"));
                let lost = taken.join().expect("no panic");
                assert!(matches!(lost, Err(ArbiterError::Lost(_))), "{lost:?}");
                assert!(lock(&tenant.shared.state).socket.is_some(), "the new connection lives");
            });
        });
    }

    /// Makes a tenant believe that bytes were granted to it, as the thread that reads does.
    fn grant(tenant: &Tenant, bytes: u64) {
        let mut state = lock(&tenant.shared.state);
        state.requests.insert(0, (bytes, None));
        state.settle(0, Ok(()));
        state.requests.clear();
    }

    #[test]
    fn bytes_that_the_arbiter_does_not_believe_are_given_back_without_it_first() {
        with_tenant("unbooked", |tenant, asked| {
            grant(tenant, 100);
            let mut state = lock(&tenant.shared.state);
            state.hang_up();
            let state = tenant.link(state).expect("welcome again");
            assert_eq!((state.held, state.unbooked), (100, 40));
            drop(state);
            tenant.give(30);
            tenant.give(30);
            let (_socket, ask) = asked.recv().expect("it says so");
            assert_eq!((ask, tenant.held()), (Ask::Give { bytes: 20 }, 40));
        });
    }

    #[test]
    fn bytes_that_are_given_back_during_a_greeting_are_told_after_it() {
        with_tenant("late", |tenant, asked| {
            grant(tenant, 50);
            let quota = lock(&tenant.shared.state).quota.take();
            tenant.give(10);
            let mut state = lock(&tenant.shared.state);
            state.quota = quota;
            drop(tenant.link(state).expect("it is connected"));
            let (_socket, ask) = asked.recv().expect("it says so");
            assert_eq!((ask, tenant.held()), (Ask::Give { bytes: 10 }, 40));
        });
    }

    #[test]
    fn nobody_greets_while_a_publication_may_have_taken_bytes_over() {
        with_tenant("handing", |tenant, asked| {
            grant(tenant, 60);
            thread::scope(|scope| {
                let handed = tenant.hand_over(50, || {
                    lock(&tenant.shared.state).hang_up();
                    scope.spawn(|| tenant.take(1));
                    // Long enough for the other thread to greet, if it were let.
                    thread::sleep(core::time::Duration::from_millis(50));
                    Ok::<(), ()>(())
                });
                assert_eq!(handed, Ok(()));
                let (_socket, ask) = asked.recv().expect("it asks");
                assert!(matches!(ask, Ask::Take { bytes: 1, .. }), "{ask:?}");
                assert_eq!(lock(&tenant.shared.state).said, 10);
            });
        });
    }

    #[test]
    fn a_callback_that_panics_leaves_no_press_without_an_answer() {
        let (tenant, arbiter) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("sockets");
        let callback: OnPress = Arc::new(|bytes| assert_ne!(bytes, 1, "a bug of the program"));
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Shared { state, changed, on_press: Mutex::new(vec![(1, callback)]) };
        let (presses, pressed) = channel();
        presses.send((7, 1)).expect("it listens");
        presses.send((8, 2)).expect("it listens");
        drop(presses);
        let answering = thread::spawn(move || shared.answer_presses(&tenant, &pressed));
        assert!(answering.join().is_ok(), "the thread goes on");
        let mut buffer = vec![0; MAX_FRAME + 1];
        for press in [7, 8] {
            let packet = socket::receive(&arbiter, &mut buffer).expect("an answer");
            assert_eq!(Ask::decode(packet).ok(), Some(Ask::Answer { press }));
        }
    }

    #[test]
    fn what_is_granted_is_held_before_the_one_who_asked_goes_on() {
        with_tenant("granted", |tenant, asked| {
            thread::scope(|scope| {
                let taken = scope.spawn(|| tenant.take(100));
                let (_socket, ask) = asked.recv().expect("it asks");
                let Ask::Take { request, bytes: 100 } = ask else { panic!("{ask:?}") };
                let mut state = lock(&tenant.shared.state);
                state.settle(request, Ok(()));
                assert_eq!(state.held, 100, "a new connection would tell it");
                drop(state);
                tenant.shared.changed.notify_all();
                assert!(taken.join().expect("no panic").is_ok());
                assert_eq!(tenant.held(), 100);
            });
        });
    }
}
