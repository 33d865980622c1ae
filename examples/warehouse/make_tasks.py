"""Write train.jsonl and test.jsonl: each kind of task in several wordings, and the test in different wordings.

python make_tasks.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from warehouse import CUSTOMERS, PRODUCTS, morning

TODAY = 20250314
HERE = Path(__file__).parent
TRAIN, TEST = 4, 2
"""Tasks of each kind."""

WORDINGS = {
    "cancel": (
        "{customer} called: they do not want order {order} any more.",
        "Please cancel order {order}.",
        "Order {order} was a mistake, the customer takes it back.",
        "The customer of order {order} has changed their mind and wants nothing sent. See to it.",
        "We will not deliver order {order}; it is off.",
        "Order {order} has to be called off at the customer's wish.",
    ),
    "ship": (
        "Order {order} has left with the van this morning.",
        "Mark order {order} as shipped.",
        "The parcel for order {order} was handed to the carrier.",
        "Order {order} is on its way to {customer}. Write that down.",
        "We sent order {order} off an hour ago.",
        "Dispatch tells us that order {order} is out of the door.",
    ),
    "hold": (
        "Order {order} must wait until {customer} has paid an old bill.",
        "Put order {order} on hold.",
        "Do not go on with order {order} for now, the address is being checked.",
        "Order {order} is to be paused until next week.",
        "Leave order {order} where it is until we hear from {customer}.",
        "Order {order} should not move on before the credit check is through: hold it.",
    ),
    "order": (
        "Customer {customer_id} orders {quantity} of product {product_id}, {euros} euros in all.",
        "New order: {quantity} x product {product_id} for customer {customer_id}, together {euros} euros.",
        "Enter an order of customer {customer_id}: {quantity} pieces of product {product_id}, {euros} euros together.",
        "Customer {customer_id} wants {quantity} of product {product_id} sent; it comes to {euros} euros.",
        "Take down an order: customer {customer_id}, product {product_id}, {quantity} pieces, {euros} euros.",
        "For customer {customer_id} please book {quantity} of product {product_id} at a total of {euros} euros.",
    ),
    "price": (
        "From today product {product_id} costs {euros} euros.",
        "Set the price of the {product} to {euros} euros.",
        "The supplier got dearer: product {product_id} is {euros} euros now.",
        "New price for product {product_id}: {euros} euros.",
        "We sell product {product_id} for {euros} euros from now on.",
        "Change what the {product} costs to {euros} euros.",
    ),
    "customer": (
        "Add a new customer: {new}, phone {phone}.",
        "{new} would like to buy from us. Their number is {phone}.",
        "Open an account for {new}, to be reached at {phone}.",
        "Please enter {new} as a customer, telephone {phone}.",
        "We have won a customer, {new}; they answer at {phone}.",
        "New in our books: {new}, phone number {phone}.",
    ),
    "phone": (
        "Customer {customer_id} has a new phone number: {phone}.",
        "The number of {customer} is now {phone}.",
        "Change the phone of customer {customer_id} to {phone}.",
        "Customer {customer_id} has moved and is reached at {phone}.",
        "From now on we call customer {customer_id} at {phone}.",
        "Correct the telephone of customer {customer_id}, it is {phone}.",
    ),
    "close": (
        "Customer {customer_id} has gone out of business. Close the account.",
        "Remove customer {customer_id}, they will not buy from us again.",
        "{customer} wants to be taken off our books.",
        "Customer {customer_id} has ended the contract with us.",
        "Close the account of customer {customer_id}.",
        "We no longer do business with customer {customer_id}. Take care of it.",
    ),
    "return": (
        "A customer brought back {quantity} of product {product_id}.",
        "Returned today: {quantity} pieces of product {product_id}.",
        "{quantity} of product {product_id} came back from a customer, unopened.",
        "Book a return of {quantity} pieces of product {product_id}.",
        "The post brought a return, {quantity} of product {product_id}.",
        "Someone did not like product {product_id} and sent {quantity} back to us.",
    ),
    "receipt": (
        "A delivery came in: {quantity} of product {product_id}.",
        "The supplier brought {quantity} pieces of product {product_id}.",
        "We received {quantity} of product {product_id} this morning.",
        "Book in {quantity} pieces of product {product_id} from the supplier.",
        "{quantity} new pieces of product {product_id} arrived for our stock.",
        "The truck unloaded {quantity} of product {product_id} for us.",
    ),
    "scrap": (
        "{quantity} of product {product_id} fell off the shelf and are broken.",
        "Throw away {quantity} pieces of product {product_id}, they are damaged.",
        "Water got into the store: {quantity} of product {product_id} are spoilt.",
        "{quantity} pieces of product {product_id} are beyond repair and were thrown out.",
        "We had to bin {quantity} of product {product_id}.",
        "Write off {quantity} of product {product_id}, a forklift drove over them.",
    ),
}
FIRST = ("Mara", "Jonas", "Elif", "Pavel", "Ingrid", "Tomasz", "Selma", "Ruben", "Yara", "Nils")
LAST = ("Holm", "Castell", "Okafor", "Brandt", "Lund", "Sorge", "Amiri", "Falk", "Wieland", "Rossi")


def facts(rng: Random, kind: str, big: bool) -> dict[str, Any]:
    """The details of a task, drawn at random."""
    order = rng.choice(morning()["orders"])
    product = rng.randrange(len(PRODUCTS))
    quantity = rng.randint(2, 9)
    cents = rng.randint(510_00, 1900_00) if big else rng.randint(15_00, 480_00)
    customer = order[1] if kind in ("cancel", "ship", "hold") else 11 + rng.randrange(len(CUSTOMERS))
    name = CUSTOMERS[customer - 11]
    number = f"{rng.randint(200, 999)} {rng.randint(10, 99)} {rng.randint(10, 99)}"
    return {
        "order": order[0],
        "customer_id": customer,
        "customer": name.title(),
        "product_id": 201 + product,
        "product": PRODUCTS[product][0],
        "quantity": quantity,
        "cents": cents,
        "euros": f"{cents // 100}.{cents % 100:02}",
        "new": f"{rng.choice(FIRST)} {rng.choice(LAST)}",
        "phone": f"+49 {rng.randint(30, 89)} {number}",
    }


def solution(kind: str, f: dict[str, Any]) -> list[str]:
    """Return the statements of the right solution."""

    def audit(code: str, ref: int) -> str:
        return f"INSERT INTO audit (code, ref, day) VALUES ('{code}', {ref}, {TODAY})"

    def movement(place: str, quantity: int) -> str:
        values = f"{f['product_id']}, '{place}', {quantity}, {TODAY}"
        return f"INSERT INTO movements (product, place, quantity, day) VALUES ({values})"

    phone = f["phone"].replace(" ", "")
    match kind:
        case "cancel":
            return [f"UPDATE orders SET status = 9 WHERE id = {f['order']}", audit("CXL", f["order"])]
        case "ship":
            return [f"UPDATE orders SET status = 5 WHERE id = {f['order']}"]
        case "hold":
            return [f"UPDATE orders SET status = 7 WHERE id = {f['order']}", audit("HLD", f["order"])]
        case "order":
            approved = "'ops'" if f["cents"] > 500_00 else "NULL"
            values = f"{f['customer_id']}, {f['product_id']}, {f['quantity']}, {f['cents']}, 1, {TODAY}, {approved}"
            columns = "customer, product, quantity, total, status, day, approved_by"
            return [f"INSERT INTO orders ({columns}) VALUES ({values})"]
        case "price":
            return [f"UPDATE products SET price = {f['cents']} WHERE id = {f['product_id']}"]
        case "customer":
            return [f"INSERT INTO customers (name, phone, level) VALUES ('{f['new'].upper()}', '{phone}', 'N')"]
        case "phone":
            return [f"UPDATE customers SET phone = '{phone}' WHERE id = {f['customer_id']}"]
        case "close":
            changed = f"UPDATE customers SET level = 'X' WHERE id = {f['customer_id']}"
            return [changed, audit("CLS", f["customer_id"])]
        case "return":
            return [movement("R-1", -f["quantity"])]
        case "receipt":
            return [movement("A-0", f["quantity"])]
        case "scrap":
            return [movement("S-9", -f["quantity"])]
    raise ValueError(kind)


def tasks(split: str) -> Iterator[dict[str, Any]]:
    """The tasks of a split, in random order. Orders above the limit are as frequent as those below."""
    rng = Random(f"warehouse {split}")
    kinds = [(kind, False) for kind in WORDINGS] + [("order", True)]
    rows = []
    for kind, big in kinds:
        wordings = WORDINGS[kind][:TRAIN] if split == "train" else WORDINGS[kind][TRAIN : TRAIN + TEST]
        for wording in wordings:
            f = facts(rng, kind, big)
            rows.append({"input": wording.format(**f), "meta": {"domain": kind, "solution": solution(kind, f)}})
    rng.shuffle(rows)
    for number, task in enumerate(rows, 1):
        yield {"id": f"{split}-{number}", **task}


def main() -> None:
    for split in ("train", "test"):
        lines = [json.dumps(task, ensure_ascii=False) for task in tasks(split)]
        (HERE / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
