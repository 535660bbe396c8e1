//! The client's rules (session and inbox) against a model of a server, in virtual time: thousands of seeds of cuts,
//! refused dials, floods, forgetful logs and slow readers. No sockets, no tasks, no clock.
//!
//! What must hold for every seed: a follower sees each entry once and in order, or is told the gap; memory stays within
//! its room; and once the line is quiet it comes to the end of the log, or is told that the session is lost.

mod server;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use exec_client::Dice;
use exec_client::inbox::{Inbox, Next, Reader, Room};
use exec_client::page::page_of;
use exec_client::session::{Effect, Failure, Loss, LossKind, Patience, Session};
use exec_core::{EntryBody, Entry, Page, ProcessId, Seq};
use exec_wire::process::ReadResult;

use server::{Server, content};

const SEEDS: u64 = 10_000;
const STEPS: usize = 300;
const ROOM: Room = Room { window_bytes: 2_000, total_bytes: 3_000 };

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
    Hello { resume: bool, asked: BTreeMap<String, Seq> },
    Read { after: Seq },
}

enum ToClient {
    Welcome { asked: BTreeMap<String, Seq>, granted: Option<BTreeMap<String, Seq>> },
    Refused,
    Push(Entry),
    Page { after: Seq, result: Box<ReadResult> },
}

/// Per process, the last seq it has seen.
type Places = BTreeMap<String, Seq>;

struct Line {
    to_server: VecDeque<ToServer>,
    to_client: VecDeque<ToClient>,
    /// The seq after which the server pushes on this connection, once it was greeted.
    push_after: Option<Seq>,
    welcome: Option<(Places, Option<Places>)>,
    useful: bool,
}

struct Follower {
    reader: Reader,
    after: Seq,
    fetching: bool,
    over: bool,
    gaps: u64,
    exits: u32,
}

struct World {
    dice: Dice,
    began: Instant,
    now: Instant,
    server: Server,
    session: Session,
    inbox: Inbox,
    line: Option<Line>,
    dialing: bool,
    follower: Follower,
    lost: Option<Loss>,
    calm: bool,
    fetches: u64,
}

fn id() -> ProcessId {
    ProcessId::new("p").expect("short")
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let patience = Patience { give_up: Duration::from_secs(25), greeting: Duration::from_secs(10) };
        let mut inbox = Inbox::new(ROOM);
        inbox.open(&id());
        let reader = inbox.join(&id(), 0).expect("it is open");
        let now = Instant::now();
        let server = Server::new(dice.below(3) == 0);
        let mut world = Self {
            session: Session::new(patience, None, seed),
            dice,
            began: now,
            now,
            server,
            inbox,
            line: None,
            dialing: false,
            follower: Follower { reader, after: 0, fetching: false, over: false, gaps: 0, exits: 0 },
            lost: None,
            calm: false,
            fetches: 0,
        };
        let effects = world.session.wanted();
        world.carry_out(effects);
        world
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..25 => self.server.print(&mut self.dice),
            25..45 => self.serve(),
            45..70 => self.deliver(),
            70..84 => self.read(),
            84..90 => self.pass_time(),
            90..95 => self.answer_dial(),
            95..97 => self.cut(),
            97 => self.server.forget(self.dice.below(20)),
            98 if self.dice.below(40) == 0 => self.server.session_alive = false,
            _ => self.pass_time(),
        }
        assert!(self.inbox.held_bytes() <= ROOM.total_bytes, "{} bytes held", self.inbox.held_bytes());
    }

    /// No more faults: everything must come to its end.
    fn calm_down(&mut self) {
        self.calm = true;
        self.server.finish();
        for _ in 0..10_000 {
            if self.follower.over || self.lost.is_some() {
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
        let Some(line) = &mut self.line else { return };
        match line.to_server.pop_front() {
            Some(ToServer::Hello { resume, asked }) if resume && !self.server.session_alive => {
                drop(asked);
                line.to_client.push_back(ToClient::Refused);
            }
            Some(ToServer::Hello { resume, asked }) => {
                self.server.session_alive = true;
                let granted = (resume && !self.server.plain).then(|| asked.clone());
                // Without places it goes on with what comes next; what was missed is not pushed.
                let place = granted.as_ref().and_then(|granted| granted.get("p").copied());
                line.push_after = Some(place.unwrap_or(if resume { self.server.next_seq - 1 } else { 0 }));
                line.to_client.push_back(ToClient::Welcome { asked, granted });
            }
            Some(ToServer::Read { after }) => {
                let result = Box::new(self.server.read(after));
                line.to_client.push_back(ToClient::Page { after, result });
            }
            None => {}
        }
        let Some(after) = &mut line.push_after else { return };
        // Now and then something twice: it must not be seen twice.
        let again = !self.calm && self.dice.below(20) == 0;
        let from = if again { after.saturating_sub(3) } else { *after };
        for (seq, body) in self.server.log.range(from + 1..).take(4) {
            line.to_client.push_back(ToClient::Push(Entry { seq: *seq, body: body.clone() }));
            *after = (*after).max(*seq);
        }
    }

    fn deliver(&mut self) {
        let live = self.session.is_live();
        let Some(line) = &mut self.line else { return };
        let Some(message) = line.to_client.pop_front() else { return };
        line.useful |= live;
        let effects = match message {
            ToClient::Push(entry) => {
                self.inbox.push(&id(), entry);
                Vec::new()
            }
            ToClient::Welcome { asked, granted } => {
                line.welcome = Some((asked, granted));
                self.session.welcomed("s")
            }
            ToClient::Refused => {
                let loss = Loss { kind: LossKind::UnknownSession, why: "unknown session id s".into() };
                self.session.failed(self.now, Failure::Final(loss))
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
        self.inbox.learn(&id(), page.head);
        self.follower.fetching = false;
        self.fetches += 1;
        // It may have read on meanwhile? No: a follower that fetches does nothing else.
        assert_eq!(after, self.follower.after);
        self.absorb(page);
    }

    fn read(&mut self) {
        if self.follower.fetching || self.follower.over || self.lost.is_some() {
            return;
        }
        let max_bytes = self.dice.below(800) as usize;
        match self.inbox.next(&id(), self.follower.after, max_bytes) {
            Next::Page(page) => self.absorb(page),
            Next::Over => self.follower.over = true,
            Next::Wait => {}
            Next::Fetch => {
                self.follower.fetching = true;
                self.send_read();
            }
            Next::Unknown => panic!("it is open as long as the session lives"),
        }
    }

    fn send_read(&mut self) {
        if let (true, Some(line)) = (self.session.is_live(), &mut self.line) {
            line.to_server.push_back(ToServer::Read { after: self.follower.after });
        }
    }

    /// What a follower is given: dense, true, and the end last.
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
        self.inbox.pass(&id(), follower.reader, follower.after);
    }

    fn pass_time(&mut self) {
        let most = if self.dice.below(10) == 0 { 9_000 } else { 400 };
        self.now += Duration::from_millis(self.dice.below(most));
        let effects = self.session.tick(self.now);
        self.carry_out(effects);
    }

    fn answer_dial(&mut self) {
        if !std::mem::take(&mut self.dialing) {
            return;
        }
        // The first connection is tried once, which is another test's subject.
        let refused = !self.calm && self.server.session_alive && self.dice.below(3) == 0;
        let effects = if refused {
            self.session.failed(self.now, Failure::Passing("refused".into()))
        } else {
            let (to_server, to_client) = (VecDeque::new(), VecDeque::new());
            self.line = Some(Line { to_server, to_client, push_after: None, welcome: None, useful: false });
            self.session.dialed(self.now)
        };
        self.carry_out(effects);
    }

    fn cut(&mut self) {
        if let Some(line) = &self.line {
            let effects = self.session.broke(self.now, "cut", line.useful);
            self.carry_out(effects);
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Dial => {
                    assert!(self.line.is_none() && !self.dialing, "one connection at a time");
                    self.dialing = true;
                }
                Effect::Greet { resume } => {
                    let asked = self.inbox.places().map(|(id, seq)| (id.as_str().to_owned(), seq)).collect();
                    let line = self.line.as_mut().expect("it was dialed");
                    line.to_server.push_back(ToServer::Hello { resume: resume.is_some(), asked });
                }
                Effect::Serve { resumed } => {
                    let line = self.line.as_mut().expect("it was greeted");
                    let (asked, granted) = line.welcome.take().expect("it was welcomed");
                    if resumed {
                        self.inbox.resume(&asked, granted.as_ref());
                    }
                    if self.follower.fetching {
                        self.send_read();
                    }
                }
                Effect::Interrupt => self.line = None,
                Effect::Forfeit(loss) => self.lost = Some(loss),
                Effect::Leave => panic!("nobody leaves"),
            }
        }
    }
}
