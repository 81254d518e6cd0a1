// What pipelines, filters and projections do to documents: mingo's reading of them, and the few
// places in which mingo does not do as MongoDB's manual says. README.md lists those.
import { Aggregator } from 'mingo/aggregator';
import { Context, evalExpr } from 'mingo/core';
import * as accumulator from 'mingo/operators/accumulator';
import * as expression from 'mingo/operators/expression';
import * as pipeline from 'mingo/operators/pipeline';
import * as projection from 'mingo/operators/projection';
import * as query from 'mingo/operators/query';
import { Query } from 'mingo/query';
import { compare, isEqual } from 'mingo/util';

// In an expression MongoDB compares values of all types by their order, and what is missing is not
// null.
const compares = (holds) => (doc, args, options) => holds(...evalExpr(doc, args, options));
const otherwise = {
  $eq: compares((a, b) => isEqual(a, b)),
  $ne: compares((a, b) => !isEqual(a, b)),
  $gt: compares((a, b) => compare(a, b) > 0),
  $gte: compares((a, b) => compare(a, b) >= 0),
  $lt: compares((a, b) => compare(a, b) < 0),
  $lte: compares((a, b) => compare(a, b) <= 0),
  // What is missing is not looked at; mingo has JavaScript sort it to the end, where the largest is
  // looked for.
  $max: (doc, arg, options) => {
    const value = evalExpr(doc, arg, options);
    return Array.isArray(value) ? accumulator.$max(value.filter((v) => v !== undefined), null, options) : value;
  },
  // What is no array has no size; mingo says null.
  $size: (doc, arg, options) => {
    const value = evalExpr(doc, arg, options);
    if (!Array.isArray(value)) throw new Error('the argument of $size is not an array');
    return value.length;
  },
};
const options = {
  context: Context.init({ accumulator, expression: { ...expression, ...otherwise }, pipeline, projection, query }),
};

// mingo takes $$NOW from here, anew for each expression; MongoDB's is one for a command.
let now = 0;
Date.now = () => now;

// at sets the time of the next command, in milliseconds.
export function at(ms) {
  now = ms;
}

export const matches = (doc, filter) => new Query(filter, options).test(doc);

// run returns what the stages make of documents. Those that it is given stay as they are.
export function run(docs, stages) {
  for (const stage of stages) {
    const fields = stage.$set ?? stage.$addFields;
    docs = fields ? docs.map((doc) => set(doc, fields)) : stored(new Aggregator([stage], options).run(docs));
  }
  return docs;
}

// projected is what an exclusion leaves of a document. A $slice that stands beside it keeps the first of
// an array; mingo would have it stand alone.
export function projected(doc, fields) {
  const slices = Object.entries(fields).filter(([, how]) => how.$slice !== undefined);
  const without = Object.fromEntries(Object.entries(fields).filter(([, how]) => how.$slice === undefined));
  const left = Object.keys(without).length > 0 ? run([doc], [{ $project: without }])[0] : { ...doc };
  for (const [name, how] of slices) if (Array.isArray(left[name])) left[name] = left[name].slice(0, how.$slice);
  return left;
}

// set is that stage: each value is computed from the document as the stage finds it, and a document
// literal merges into what stands there.
function set(doc, fields) {
  const values = paths(fields, []).map(([path, value]) => [path, stored(evalExpr(doc, value, options))]);
  return values.reduce((changed, [path, value]) => put(changed, path, value), doc);
}

function paths(fields, above) {
  return Object.entries(fields).flatMap(([name, value]) => {
    const path = [...above, ...name.split('.')];
    const isLiteral = isDocument(value) && Object.keys(value).some((key) => !key.startsWith('$'));
    return isLiteral ? paths(value, path) : [[path, value]];
  });
}

// put returns a copy of target with value at the end of path: in every element of an array on the
// way.
function put(target, path, value) {
  if (Array.isArray(target)) return target.map((item) => put(item, path, value));
  const [name, ...rest] = path;
  const changed = isDocument(target) ? { ...target } : {};
  changed[name] = rest.length > 0 ? put(changed[name], rest, value) : value;
  if (changed[name] === undefined) delete changed[name];
  return changed;
}

export const isDocument = (v) => v !== null && typeof v === 'object' && Object.getPrototypeOf(v) === Object.prototype;

// stored is a value as a database stores it: what is missing is no field of a document, and null in
// an array.
function stored(v) {
  if (Array.isArray(v)) return v.map((item) => stored(item) ?? null);
  if (!isDocument(v)) return v;
  return Object.fromEntries(Object.entries(v).filter(([, field]) => field !== undefined).map(([name, field]) => [name, stored(field)]));
}
