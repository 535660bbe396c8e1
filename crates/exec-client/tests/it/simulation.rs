//! The client's rules (session and inbox) against a model of a server, in virtual time: thousands of seeds of cuts,
//! refused dials, floods, forgetful logs and slow readers. No sockets, no tasks, no clock.
//!
//! What must hold for every seed: a follower sees each entry once and in order, or is told the gap; memory stays within
//! its limits; and once there are no more faults it comes to the end of the log, or is told that the session is lost.

mod server;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use exec_client::inbox::{Inbox, InboxLimits, NextRead, ReaderId};
use exec_client::page::page_of;
use exec_client::session::{AttemptError, Effect, LossKind, SeededRng, Session, SessionLoss, SessionTimeouts};
use exec_core::{Entry, EntryBody, Page, ProcessId, Seq};
use exec_wire::process::ReadResult;

use server::{Server, content};

const SEEDS: u64 = 10_000;
const STEPS: usize = 300;
const LIMITS: InboxLimits = InboxLimits { window_bytes: 2_000, total_bytes: 3_000 };

#[test]
fn whatever_breaks_a_follower_sees_each_entry_once_or_is_told_why_not() {
    let (mut reconnects, mut gaps, mut lost, mut fetches) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.calm_down();
        reconnects += world.session.reconnects();
        gaps += world.follower.gaps;
        fetches += world.fetches;
        lost += u64::from(world.lost.is_some());
    }
    // A simulation in which nothing happens proves nothing.
    assert!(
        reconnects > SEEDS && gaps > SEEDS / 10 && lost > SEEDS / 100 && fetches > SEEDS,
        "{reconnects} {gaps} {lost} {fetches}"
    );
}

#[test]
fn the_same_seed_is_the_same_world() {
    let run = |seed| {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        (world.now - world.began, world.follower.after, world.session.reconnects(), world.fetches)
    };
    for seed in 0..50 {
        assert_eq!(run(seed), run(seed));
    }
}

enum ToServer {
    Initialize { resume: bool, requested: BTreeMap<String, Seq> },
    Read { after: Seq },
}

enum ToClient {
    Initialized { requested: BTreeMap<String, Seq>, granted: Option<BTreeMap<String, Seq>> },
    Refused,
    Push(Entry),
    Page { after: Seq, result: Box<ReadResult> },
}

/// For each process, the seq after which the push should go on.
type ResumePoints = BTreeMap<String, Seq>;

struct Connection {
    to_server: VecDeque<ToServer>,
    to_client: VecDeque<ToClient>,
    /// The seq after which the server pushes on this connection, once it was initialized.
    push_after: Option<Seq>,
    initialize_reply: Option<(ResumePoints, Option<ResumePoints>)>,
    carried_data: bool,
}

struct Follower {
    reader: ReaderId,
    after: Seq,
    fetching: bool,
    ended: bool,
    gaps: u64,
    exits: u32,
}

struct World {
    rng: SeededRng,
    began: Instant,
    now: Instant,
    server: Server,
    session: Session,
    inbox: Inbox,
    connection: Option<Connection>,
    dialing: bool,
    follower: Follower,
    lost: Option<SessionLoss>,
    calm: bool,
    fetches: u64,
}

fn id() -> ProcessId {
    ProcessId::new("p").expect("short")
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let timeouts = SessionTimeouts { give_up: Duration::from_secs(25), initialize: Duration::from_secs(10) };
        let mut inbox = Inbox::new(LIMITS);
        inbox.open(&id());
        let reader = inbox.add_reader(&id(), 0).expect("it is open");
        let now = Instant::now();
        let server = Server::new(rng.below(3) == 0);
        let mut world = Self {
            session: Session::new(timeouts, None, seed),
            rng,
            began: now,
            now,
            server,
            inbox,
            connection: None,
            dialing: false,
            follower: Follower { reader, after: 0, fetching: false, ended: false, gaps: 0, exits: 0 },
            lost: None,
            calm: false,
            fetches: 0,
        };
        let effects = world.session.connection_wanted();
        world.carry_out(effects);
        world
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..25 => self.server.print(&mut self.rng),
            25..45 => self.serve(),
            45..70 => self.deliver(),
            70..84 => self.read(),
            84..90 => self.pass_time(),
            90..95 => self.answer_dial(),
            95..97 => self.cut(),
            97 => self.server.forget(self.rng.below(20)),
            98 if self.rng.below(40) == 0 => self.server.session_alive = false,
            _ => self.pass_time(),
        }
        assert!(self.inbox.held_bytes() <= LIMITS.total_bytes, "{} bytes held", self.inbox.held_bytes());
    }

    /// From here on there are no more faults, so the follower must come to an end.
    fn calm_down(&mut self) {
        self.calm = true;
        self.server.finish();
        for _ in 0..10_000 {
            if self.follower.ended || self.lost.is_some() {
                return;
            }
            self.answer_dial();
            self.serve();
            self.deliver();
            self.read();
            self.pass_time();
        }
        panic!("stuck at {} of {}", self.follower.after, self.server.next_seq);
    }

    fn serve(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        match connection.to_server.pop_front() {
            Some(ToServer::Initialize { resume, requested }) if resume && !self.server.session_alive => {
                drop(requested);
                connection.to_client.push_back(ToClient::Refused);
            }
            Some(ToServer::Initialize { resume, requested }) => {
                self.server.session_alive = true;
                let granted = (resume && !self.server.plain).then(|| requested.clone());
                // A plain server is not told where to go on: it pushes what comes next, and not what was missed.
                let position = granted.as_ref().and_then(|granted| granted.get("p").copied());
                connection.push_after = Some(position.unwrap_or(if resume { self.server.next_seq - 1 } else { 0 }));
                connection.to_client.push_back(ToClient::Initialized { requested, granted });
            }
            Some(ToServer::Read { after }) => {
                let result = Box::new(self.server.read(after));
                connection.to_client.push_back(ToClient::Page { after, result });
            }
            None => {}
        }
        let Some(after) = &mut connection.push_after else { return };
        // Now and then an entry is pushed twice; it must not be read twice.
        let again = !self.calm && self.rng.below(20) == 0;
        let from = if again { after.saturating_sub(3) } else { *after };
        for (seq, body) in self.server.log.range(from + 1..).take(4) {
            connection.to_client.push_back(ToClient::Push(Entry { seq: *seq, body: body.clone() }));
            *after = (*after).max(*seq);
        }
    }

    fn deliver(&mut self) {
        let live = self.session.is_live();
        let Some(connection) = &mut self.connection else { return };
        let Some(message) = connection.to_client.pop_front() else { return };
        connection.carried_data |= live;
        let effects = match message {
            ToClient::Push(entry) => {
                self.inbox.push(&id(), entry);
                Vec::new()
            }
            ToClient::Initialized { requested, granted } => {
                connection.initialize_reply = Some((requested, granted));
                self.session.initialized("s")
            }
            ToClient::Refused => {
                let loss = SessionLoss { kind: LossKind::UnknownSession, why: "unknown session id s".into() };
                self.session.attempt_failed(self.now, AttemptError::Permanent(loss))
            }
            ToClient::Page { after, result } => {
                self.take_fetched(after, *result);
                Vec::new()
            }
        };
        self.carry_out(effects);
    }

    fn take_fetched(&mut self, after: Seq, result: ReadResult) {
        let known_exit = self.inbox.head(&id()).and_then(|head| head.exit);
        let page = page_of(after, result, known_exit);
        self.inbox.update_head(&id(), page.head);
        self.follower.fetching = false;
        self.fetches += 1;
        // A follower that fetches does nothing else, so it is where it was.
        assert_eq!(after, self.follower.after);
        self.absorb(page);
    }

    fn read(&mut self) {
        if self.follower.fetching || self.follower.ended || self.lost.is_some() {
            return;
        }
        let max_bytes = self.rng.below(800) as usize;
        match self.inbox.next(&id(), self.follower.after, max_bytes) {
            NextRead::Page(page) => self.absorb(page),
            NextRead::End => self.follower.ended = true,
            NextRead::Wait => {}
            NextRead::Fetch => {
                self.follower.fetching = true;
                self.send_read();
            }
            NextRead::Unknown => panic!("it is open as long as the session lives"),
        }
    }

    fn send_read(&mut self) {
        if let (true, Some(connection)) = (self.session.is_live(), &mut self.connection) {
            connection.to_server.push_back(ToServer::Read { after: self.follower.after });
        }
    }

    /// Checks what a follower is given: no seq is missing, the contents are right, and `closed` is last.
    fn absorb(&mut self, page: Page) {
        let follower = &mut self.follower;
        if let Some(gap) = page.gap {
            assert_eq!(gap.from_seq, follower.after + 1, "a gap begins where the reader is");
            follower.gaps += 1;
            follower.after = gap.to_seq;
        }
        for entry in &page.entries {
            assert_eq!(entry.seq, follower.after + 1, "each seq once, in order");
            match &entry.body {
                EntryBody::Output { bytes, .. } => assert_eq!(*bytes, content(entry.seq)),
                EntryBody::Exited(_) => follower.exits += 1,
                EntryBody::Closed => assert!(self.server.closed && entry.seq + 1 == self.server.next_seq),
            }
            follower.after = entry.seq;
        }
        assert!(follower.exits <= 1, "a leader ends once");
        assert!(page.head.next_seq > follower.after);
        self.inbox.advance_reader(&id(), follower.reader, follower.after);
    }

    fn pass_time(&mut self) {
        let most = if self.rng.below(10) == 0 { 9_000 } else { 400 };
        self.now += Duration::from_millis(self.rng.below(most));
        let effects = self.session.tick(self.now);
        self.carry_out(effects);
    }

    fn answer_dial(&mut self) {
        if !std::mem::take(&mut self.dialing) {
            return;
        }
        // The first connection is tried only once; another test is about that.
        let refused = !self.calm && self.server.session_alive && self.rng.below(3) == 0;
        let effects = if refused {
            self.session.attempt_failed(self.now, AttemptError::Transient("refused".into()))
        } else {
            let (to_server, to_client) = (VecDeque::new(), VecDeque::new());
            self.connection = Some(Connection {
                to_server,
                to_client,
                push_after: None,
                initialize_reply: None,
                carried_data: false,
            });
            self.session.connected(self.now)
        };
        self.carry_out(effects);
    }

    fn cut(&mut self) {
        if let Some(connection) = &self.connection {
            let effects = self.session.connection_lost(self.now, "cut", connection.carried_data);
            self.carry_out(effects);
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Dial => {
                    assert!(self.connection.is_none() && !self.dialing, "one connection at a time");
                    self.dialing = true;
                }
                Effect::Initialize { resume } => {
                    let requested = self.inbox.resume_points().map(|(id, seq)| (id.as_str().to_owned(), seq)).collect();
                    let connection = self.connection.as_mut().expect("it was dialed");
                    connection.to_server.push_back(ToServer::Initialize { resume: resume.is_some(), requested });
                }
                Effect::GoLive { resumed } => {
                    let connection = self.connection.as_mut().expect("it was greeted");
                    let (requested, granted) = connection.initialize_reply.take().expect("it was accepted");
                    if resumed {
                        self.inbox.resume(&requested, granted.as_ref());
                    }
                    if self.follower.fetching {
                        self.send_read();
                    }
                }
                Effect::DropConnection => self.connection = None,
                Effect::LoseSession(loss) => self.lost = Some(loss),
                Effect::Close => panic!("nobody leaves"),
            }
        }
    }
}
